package pipelinetest

import "sync"

// together runs n calls at once and waits for all of them.
func Together(n int, call func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { call(i) })
	}
	all.Wait()
}
