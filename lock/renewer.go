package lock

import (
	"context"
	"slices"
	"sync"
	"time"

	scripts "sluice/lua/lock"
)

const (
	// renewPart: a lease is renewed when a third of it is over, which leaves time for a second and a third try.
	renewPart = 3
	// retryPart: a failed renewal is repeated after this part of what is left of the lease.
	retryPart = 12
	// sameBatch: a lease that is due within this part of its length joins the batch that is sent now.
	sameBatch = 6
	// renewalsAtOnce bounds the batches in flight.
	renewalsAtOnce = 8
)

// renewer keeps a client's leases alive with few calls. It has no goroutine of its own: a timer starts one when a lease
// is due.
type renewer struct {
	mu      sync.Mutex // protects the rest, and due and busy of the leases
	leases  map[*lease]struct{}
	timer   *time.Timer
	firesAt time.Time // zero when the timer is not set
	stopped bool
}

// add starts the renewal of a lease, the first one at due.
func (r *renewer) add(c *Client, l *lease, due time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return
	}
	if r.leases == nil {
		r.leases = map[*lease]struct{}{}
	}
	l.due = due
	r.leases[l] = struct{}{}
	r.schedule(c, l.due)
}

// schedule needs mu. It makes the timer fire at an instant or before.
func (r *renewer) schedule(c *Client, at time.Time) {
	if r.stopped || !r.firesAt.IsZero() && !at.Before(r.firesAt) {
		return
	}
	r.firesAt = at
	wait := max(time.Until(at), 0)
	if r.timer == nil {
		r.timer = time.AfterFunc(wait, func() { r.run(c) })
		return
	}
	r.timer.Reset(wait)
}

// remove ends the renewal of a lease. One in flight may still arrive; it renews nothing that was freed.
func (r *renewer) remove(l *lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.leases, l)
}

// startTask registers something that Close waits for. It returns false when the client is closed; otherwise call
// running.Done.
func (c *Client) startTask() bool {
	c.renewer.mu.Lock()
	defer c.renewer.mu.Unlock()
	if c.renewer.stopped {
		return false
	}
	c.running.Add(1)
	return true
}

func (r *renewer) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	if r.timer != nil {
		r.timer.Stop()
	}
}

// run renews the leases that are due. The timer may fire again meanwhile, for others: a batch that hangs holds up no
// other.
func (r *renewer) run(c *Client) {
	r.mu.Lock()
	if r.stopped {
		r.mu.Unlock()
		return
	}
	c.running.Add(1)
	defer c.running.Done()
	now := time.Now()
	r.firesAt = time.Time{}
	var due []*lease
	var next time.Time
	for l := range r.leases {
		switch {
		case l.renewing:
		case l.due.Sub(now) <= l.ttl/sameBatch:
			l.renewing = true
			due = append(due, l)
		case next.IsZero() || l.due.Before(next):
			next = l.due
		}
	}
	if !next.IsZero() {
		r.schedule(c, next)
	}
	r.mu.Unlock()
	// Not under the mutex: the context may be that of another lease, whose end locks it.
	due = slices.DeleteFunc(due, func(l *lease) bool {
		over := l.parent.Err() != nil
		if over {
			r.remove(l) // its work is over, so the lease may end
		}
		return over
	})
	if len(due) > 0 {
		c.renew(due)
	}
}

// renew sends the batches, one for each slot where keys must lie in one, and waits for them.
func (c *Client) renew(due []*lease) {
	batches := map[string][]*lease{}
	for _, l := range due {
		slot := ""
		if c.cluster {
			slot = hashTag(l.renewals()[0].Key)
		}
		batches[slot] = append(batches[slot], l)
	}
	var calls sync.WaitGroup
	free := make(chan struct{}, renewalsAtOnce)
	for _, group := range batches {
		for len(group) > 0 {
			n, holds := takeBatch(group)
			batch := group[:n]
			group = group[n:]
			free <- struct{}{}
			calls.Go(func() {
				defer func() { <-free }()
				c.renewBatch(batch, holds)
			})
		}
	}
	calls.Wait()
}

// takeBatch returns how many leases fit into one call, and their renewals.
func takeBatch(group []*lease) (n int, holds []scripts.Renewal) {
	for _, l := range group {
		more := l.renewals()
		if n > 0 && len(holds)+len(more) > scripts.MaxRenewals {
			break
		}
		for i := range more {
			more[i].TTL = l.ttl
		}
		holds = append(holds, more...)
		n++
	}
	return n, holds
}

// renewBatch makes one call. It has half of the time that the shortest lease has left, so that a connection that hangs
// leaves time for another; a reply after a lease's deadline is void.
func (c *Client) renewBatch(batch []*lease, holds []scripts.Renewal) {
	limit := batch[0].ttl
	for _, l := range batch {
		limit = min(limit, l.remaining())
	}
	ctx, cancel := context.WithTimeout(c.closing, max(limit/2, time.Millisecond))
	defer cancel()
	sent := time.Now()
	held, err := scripts.Renew(ctx, c.rdb, holds)
	for _, l := range batch {
		n := len(l.renewals())
		if err != nil {
			c.renewer.reschedule(c, l, time.Now().Add(l.remaining()/retryPart))
			continue
		}
		lost := slices.Contains(held[:n], false)
		held = held[n:]
		if lost {
			l.end(ErrLeaseLost)
			continue
		}
		l.applyRenewal(sent, l.ttl)
		c.renewer.reschedule(c, l, sent.Add(l.ttl/renewPart))
	}
}

// reschedule sets when a lease is due next.
func (r *renewer) reschedule(c *Client, l *lease, due time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.renewing = false
	if _, held := r.leases[l]; held {
		l.due = due
		r.schedule(c, due)
	}
}
