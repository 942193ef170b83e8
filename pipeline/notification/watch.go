package notification

import (
	"slices"

	"sluice/pipeline"
)

// Watch is one watcher's view of one order. Its owner must Close it.
type Watch struct {
	hub     *Hub
	key     pipeline.OrderKey
	changes chan pipeline.Order
	hints   chan struct{}
	seen    int // version delivered last; protected by hub.mu
	closed  bool
}

// Watch begins to watch an order of which the caller has seen a version (0: queued). What Postgres has already, and is
// newer, is delivered first: a caller that watches first and looks elsewhere afterwards misses nothing. It is not
// checked here whose order it is. Errors: KindOverloaded at a limit, of the process or of the order; KindUnavailable
// when the hub has ended.
func (h *Hub) Watch(saleID, orderID string, seen int) (*Watch, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := pipeline.OrderKey{SaleID: saleID, OrderID: orderID}
	switch {
	case h.ended:
		return nil, pipeline.Errorf(
			pipeline.KindUnavailable, "this server is stopping; ask again, and another one will answer",
		)
	case h.count >= h.Limit:
		return nil, pipeline.Errorf(pipeline.KindOverloaded, "%d clients wait for news of their orders; no more can", h.count)
	case len(h.watched[key]) >= hubPerOrder:
		return nil, pipeline.Errorf(
			pipeline.KindOverloaded, "%d clients wait for news of this order; close one of them first", hubPerOrder,
		)
	}
	w := &Watch{hub: h, key: key, changes: make(chan pipeline.Order, 1), hints: make(chan struct{}, 1), seen: seen}
	h.watched[key] = append(h.watched[key], w)
	h.count++
	h.metrics.waiting.Set(float64(h.count))
	h.due.push(dueOrder{key: key}) // no change, so no delay to measure
	h.signal()
	return w, nil
}

// Changes returns the channel on which the newest status arrives. It buffers one order, the newest: what was not taken
// out is replaced. It is closed when the hub ends.
func (w *Watch) Changes() <-chan pipeline.Order { return w.changes }

// Hints returns the channel that gets a value when a message names the order and Postgres has no row of it: somebody
// waits for it, or it is queued. What has changed is not in Postgres, and is to be looked up in Redis. It is never
// closed, and a hint that was not taken out stands for all later ones.
func (w *Watch) Hints() <-chan struct{} { return w.hints }

// Close ends the watch. Calling it again changes nothing.
func (w *Watch) Close() {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.closed {
		return
	}
	w.closed = true
	h.count--
	h.metrics.waiting.Set(float64(h.count))
	rest := slices.DeleteFunc(h.watched[w.key], func(other *Watch) bool { return other == w })
	if len(rest) > 0 {
		h.watched[w.key] = rest
		return
	}
	delete(h.watched, w.key)
	h.due.drop(w.key) // or what is due would pile up while Postgres is away
}

// hint never waits.
func (w *Watch) hint() {
	select {
	case w.hints <- struct{}{}:
	default:
	}
}

// offer delivers an order that is newer than what was delivered; the hub's lock is held. It never waits.
func (w *Watch) offer(o *pipeline.Order) bool {
	if o.Version <= w.seen {
		return false
	}
	w.seen = o.Version
	select {
	case <-w.changes: // it was not taken, and is outdated now
	default:
	}
	w.changes <- *o
	return true
}
