package functions

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Hook has a client call functions in place of scripts: EVALSHA and the hash of one of ours becomes FCALL and the name
// of its function, which takes the same arguments.
type Hook struct{}

// Use has a client call functions, from its first command on. A node of a cluster that is used by itself, for a
// connection of its own, has none of the hooks of the whole, and gets one too.
func Use(rdb redis.UniversalClient) {
	rdb.AddHook(Hook{})
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(Hook{}) })
	}
}

// DialHook changes nothing.
func (Hook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook rewrites one command.
func (Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		called := rewrite(cmd)
		err := next(ctx, cmd)
		if called && missing(err) {
			err = notLoaded(err)
			cmd.SetErr(err)
		}
		return err
	}
}

// ProcessPipelineHook rewrites each command of a pipeline.
func (Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			rewrite(cmd)
		}
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if missing(cmd.Err()) {
				cmd.SetErr(notLoaded(cmd.Err()))
			}
		}
		return err
	}
}

func rewrite(cmd redis.Cmder) bool {
	args := cmd.Args()
	if len(args) < 3 || cmd.Name() != "evalsha" {
		return false
	}
	hash, ok := args[1].(string)
	if !ok {
		return false
	}
	function, ours := build().byHash[hash]
	if ours {
		args[0], args[1] = "fcall", function
	}
	return ours
}

func missing(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "ERR Function not found")
}

func notLoaded(err error) error {
	return fmt.Errorf("the functions of this build are not in Redis; run sluice functions load (%w)", err)
}
