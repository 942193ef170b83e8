package main

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// scanPage is how many keys Redis looks at in one step: some 100 µs.
const scanPage = 1000

// scan finds keys by looking at all of them, step by step, on every server of a cluster. There are few: some for each
// sale and worker, and a lock for each order in work.
func (s *stores) scan(ctx context.Context, pattern string) ([]string, error) {
	var mu sync.Mutex // protects found: a cluster's servers are asked at once
	var found []string
	one := func(ctx context.Context, server redis.Cmdable) error {
		keys := server.Scan(ctx, 0, pattern, scanPage).Iterator()
		for keys.Next(ctx) {
			mu.Lock()
			found = append(found, keys.Val())
			mu.Unlock()
		}
		return keys.Err()
	}
	if cluster, ok := s.redis.(*redis.ClusterClient); ok {
		err := cluster.ForEachMaster(ctx, func(ctx context.Context, server *redis.Client) error { return one(ctx, server) })
		return found, err
	}
	err := one(ctx, s.redis)
	return found, err
}
