package admission

// The internals that the tests need. They are in an external test package because pipelinetest imports this one.

// Waiting is how many requests wait in all gates, those of the call in flight not counted.
func (c *Controller) Waiting() int {
	waiting := 0
	c.gates.Range(func(_, value any) bool {
		g := value.(*gate)
		g.mu.Lock()
		defer g.mu.Unlock()
		waiting += len(g.queue)
		return true
	})
	return waiting
}

// Busy reports whether any gate has requests, waiting or in a call.
func (c *Controller) Busy() bool {
	busy := false
	c.gates.Range(func(_, value any) bool {
		g := value.(*gate)
		g.mu.Lock()
		defer g.mu.Unlock()
		busy = busy || g.draining
		return true
	})
	return busy
}

// RefusalAge is how old what is remembered may be.
const RefusalAge = refusalAge
