package buyers

import (
	"context"
	"net/http"
	"slices"
	"time"
)

// entry is what a buyer who joined the waitlist remembers.
type entry struct {
	order    string // named by the 202: of the order that is made when the turn comes
	position int    // as answered while no unit had come free and nobody had left; 0 afterwards
	asked    time.Time
	answered time.Time
	left     bool // by the answer, as the next one
	turn     bool // has come: the buyer has the order
}

// ChangesFrom notes that units may come free from a moment on, if not before.
func (h *History) ChangesFrom(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unchangedUntil.IsZero() || at.Before(h.unchangedUntil) {
		h.unchangedUntil = at
	}
}

// JoinWaitlist has a buyer wait for a unit.
func (c *Client) JoinWaitlist(ctx context.Context, sale string, buyer uint32) {
	asked := time.Now()
	if a, ok := c.note(ctx, call{http.MethodPost, sale, "/waitlist", UserOf(buyer), `{"quantity":1}`}); ok {
		c.History.noteJoined(buyer, asked, a)
	}
}

// LeaveWaitlist has a buyer leave.
func (c *Client) LeaveWaitlist(ctx context.Context, sale string, buyer uint32) {
	if a, ok := c.note(ctx, call{http.MethodDelete, sale, "/waitlist", UserOf(buyer), ""}); ok {
		c.History.noteLeft(buyer, a)
	}
}

// AskForTurn has a buyer who waits look. It returns the order once the turn has come, else "".
func (c *Client) AskForTurn(ctx context.Context, sale string, buyer uint32) (order string) {
	a, ok := c.note(ctx, call{http.MethodGet, sale, "/waitlist", UserOf(buyer), ""})
	if ok && c.History.noteTurn(buyer, a) {
		return a.OrderID
	}
	return ""
}

// Cancel has a buyer cancel an order.
func (c *Client) Cancel(ctx context.Context, sale string, buyer uint32, order string) {
	if a, ok := c.note(ctx, call{http.MethodPost, sale, "/orders/" + order + "/cancel", UserOf(buyer), ""}); ok {
		c.History.noteCancelled(order, a)
	}
}

// note makes a call. Without an answer it notes that, unless the run itself was asked to end.
func (c *Client) note(ctx context.Context, one call) (Answer, bool) {
	a, err := c.call(ctx, one)
	if err != nil && ctx.Err() == nil {
		c.History.Strangef("%s, %s %s: %v", one.user, one.method, one.path, err)
	}
	return a, err == nil
}

// noteJoined: where units came free meanwhile, there is nothing to wait for.
func (h *History) noteJoined(buyer uint32, asked time.Time, a Answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case a.Status == http.StatusAccepted && a.OrderID != "" && a.Position > 0:
		e := &entry{order: a.OrderID, asked: asked, answered: time.Now()}
		if h.unchangedUntil.IsZero() || e.answered.Before(h.unchangedUntil) {
			e.position = a.Position
		}
		h.entries[buyer] = e
		h.joined++
	case a.Code != "not-sold-out":
		h.strangef("%s joined the waitlist and was answered by %d %.200s", UserOf(buyer), a.Status, a.Body)
	}
}

// noteLeft: a buyer whose turn came first has the order.
func (h *History) noteLeft(buyer uint32, a Answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case a.Status == http.StatusNoContent:
		h.entries[buyer].left = true
		h.left++
	case a.Code != AlreadyOrdered.Code():
		h.strangef("%s left the waitlist and was answered by %d %.200s", UserOf(buyer), a.Status, a.Body)
	}
}

// noteTurn reports whether the turn has come.
func (h *History) noteTurn(buyer uint32, a Answer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.entries[buyer]
	switch {
	case a.State == "ordered" && a.OrderID == e.order:
		e.turn = true
		return true
	case a.State != "waiting" || a.OrderID != e.order:
		h.strangef("%s waits for order %s and was answered by %d %.200s", UserOf(buyer), e.order, a.Status, a.Body)
	}
	return false
}

// noteCancelled: a buyer who was too late has an order that had ended otherwise.
func (h *History) noteCancelled(order string, a Answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case a.Status == http.StatusOK && a.State == statusCancelled:
		h.settledOf(order).cancelled = true
	case a.Code != "not-cancellable":
		h.strangef("cancelling order %s was answered by %d %.200s", order, a.Status, a.Body)
	}
}

// Waiting are those who joined, did not leave, and whose turn has not come as far as they know.
func (h *History) Waiting() []uint32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	var waiting []uint32
	for buyer, e := range h.entries {
		if !e.left && !e.turn {
			waiting = append(waiting, buyer)
		}
	}
	slices.Sort(waiting)
	return waiting
}

// Waitlist counts those who joined, and those of them who left again.
func (h *History) Waitlist() (joined, left int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.joined, h.left
}
