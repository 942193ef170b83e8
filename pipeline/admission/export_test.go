package admission

// What the tests outside of the package need to see of its inside. They can't be inside: the test servers' package imports
// this one.

// Waiting is how many requests wait in all gates, those of the call in flight not counted.
func (a *Controller) Waiting() int {
	waiting := 0
	a.gates.Range(func(_, value any) bool {
		g := value.(*gate)
		g.mu.Lock()
		defer g.mu.Unlock()
		waiting += len(g.queue)
		return true
	})
	return waiting
}

// Busy reports whether any gate has requests, waiting or in a call.
func (a *Controller) Busy() bool {
	busy := false
	a.gates.Range(func(_, value any) bool {
		g := value.(*gate)
		g.mu.Lock()
		defer g.mu.Unlock()
		busy = busy || g.draining
		return true
	})
	return busy
}
