package pipelinetest

import (
	"context"
	"sync"
)

// Together runs n calls at once and waits for all of them.
func Together(n int, call func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { call(i) })
	}
	all.Wait()
}

// Background runs something until the test ends or it is stopped: stop ends its context and waits for its return.
func (r *Rig) Background(run func(context.Context)) (stop func()) {
	r.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	r.Cleanup(stop)
	return stop
}
