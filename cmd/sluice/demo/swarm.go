package demo

import (
	"context"
	"sync"
)

// swarm does something for each of a list, a few at a time and in its order, and returns when all is done or ctx has ended.
func swarm[T any](ctx context.Context, list []T, atOnce int, do func(T)) {
	due := make(chan T)
	var busy sync.WaitGroup
	for range min(atOnce, len(list)) {
		busy.Go(func() {
			for item := range due {
				do(item)
			}
		})
	}
	for _, item := range list {
		if ctx.Err() != nil {
			break
		}
		due <- item
	}
	close(due)
	busy.Wait()
}
