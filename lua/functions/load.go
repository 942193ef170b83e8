package functions

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

var errKind = errors.New("functions are loaded over a client of one server or of a cluster")

// Load puts the functions of this build on a server, or on every master of a cluster. Those of other builds stay: they
// may run beside this one. It may be repeated.
func Load(ctx context.Context, rdb redis.UniversalClient) error {
	return eachMaster(ctx, rdb, func(ctx context.Context, server *redis.Client) error {
		return server.FunctionLoadReplace(ctx, build().code).Err()
	})
}

// Prune removes the functions of all other builds, and returns how many libraries there were.
func Prune(ctx context.Context, rdb redis.UniversalClient) (pruned int, err error) {
	var mu sync.Mutex // protects pruned
	err = eachMaster(ctx, rdb, func(ctx context.Context, server *redis.Client) error {
		names, err := list(ctx, server)
		if err != nil {
			return err
		}
		for _, name := range names {
			if name == Name() {
				continue
			}
			if err := server.FunctionDelete(ctx, name).Err(); err != nil {
				return err
			}
			mu.Lock()
			pruned++
			mu.Unlock()
		}
		return nil
	})
	return pruned, err
}

// Loaded reports whether every master has the functions of this build.
func Loaded(ctx context.Context, rdb redis.UniversalClient) (bool, error) {
	var mu sync.Mutex // protects all
	all := true
	err := eachMaster(ctx, rdb, func(ctx context.Context, server *redis.Client) error {
		names, err := list(ctx, server)
		has := false
		for _, name := range names {
			has = has || name == Name()
		}
		mu.Lock()
		defer mu.Unlock()
		all = all && has
		return err
	})
	return all && err == nil, err
}

// list returns the names of our libraries.
func list(ctx context.Context, server *redis.Client) ([]string, error) {
	found, err := server.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: Prefix + "*"}).Result()
	var names []string
	for _, library := range found {
		if strings.HasPrefix(library.Name, Prefix) {
			names = append(names, library.Name)
		}
	}
	return names, err
}

func eachMaster(ctx context.Context, rdb redis.UniversalClient, do func(context.Context, *redis.Client) error) error {
	switch servers := rdb.(type) {
	case *redis.ClusterClient:
		return servers.ForEachMaster(ctx, do)
	case *redis.Client:
		return do(ctx, servers)
	default:
		return errKind
	}
}
