package httpapi_test

import (
	"strings"
	"testing"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/notification"
)

// waitingOrder is what tests look at in an order that is waited for.
type waitingOrder struct {
	OrderID     string `json:"order_id"`
	OrderNumber string `json:"order_number"`
	Status      string
	Quantity    int
	Position    int64
	Exact       *bool  `json:"position_exact"`
	JoinedAt    string `json:"joined_at"`
	AcceptedAt  string `json:"accepted_at"`
	PayBy       string `json:"pay_by"`
	ClosedAt    string `json:"closed_at"`
}

// waitRig is a sale of one unit, ordered and stored, for which bob and then cy wait. It returns the orders' paths.
func waitRig(t *testing.T, o rigOptions) (r *rig, sale *pipeline.Sale, ann, bob, cy string) {
	t.Helper()
	r = newRig(t, o)
	sale = r.create(waitlisted("drop-1", 1, 5))
	ann = r.expect(order("drop-1", "ann", ""), 202, "").header.Get("Location")
	r.persist(sale)
	path := func(user string) string {
		joined := decode[waitlistEntry](t, r.expect(join("drop-1", user, ""), 202, ""))
		return "/v1/sales/drop-1/orders/" + joined.OrderID
	}
	return r, sale, ann, path("bob"), path("cy")
}

// TestAnOrderIsSeenWhileItIsWaitedFor: under the id that the join gave, from the join on; by its buyer alone; and with
// a final answer for one who has left.
func TestAnOrderIsSeenWhileItIsWaitedFor(t *testing.T) {
	t.Parallel()
	r, sale, ann, bob, cy := waitRig(t, rigOptions{})
	mine := "/v1/sales/drop-1/orders/mine"
	shows := func(user, status string, position int64, paths ...string) (seen waitingOrder) {
		t.Helper()
		for _, path := range paths {
			got := r.expect(get(path, user), 200, "")
			seen = decode[waitingOrder](t, got)
			waits := status == "waiting"
			if seen.Status != status || seen.Position != position || seen.Quantity != 1 || seen.OrderNumber == "" ||
				(seen.Exact != nil && *seen.Exact) != waits ||
				(seen.JoinedAt != "") != (waits || status == "left") || (seen.AcceptedAt == "") != (seen.JoinedAt != "") {
				t.Errorf("%s of %s: got %s, want %s at %d", path, user, got.body, status, position)
			}
		}
		return seen
	}
	shows("bob", "waiting", 1, bob, mine)
	shows("cy", "waiting", 2, cy, mine)
	for _, path := range []string{bob, bob + "/events"} {
		r.expect(get(path, "cy"), 404, "unknown-order")
		r.expect(get(path, "dan"), 404, "unknown-order")
	}
	waits := r.expect(cancel(bob, "bob"), 409, "not-cancellable").problem()
	if !strings.Contains(waits.Detail, "DELETE /v1/sales/drop-1/waitlist") {
		t.Errorf("cancel what is waited for: got %q", waits.Detail)
	}
	tag := r.expect(get(cy, "cy"), 200, "").header.Get("ETag")
	r.expect(get(cy, "cy").with("If-None-Match", tag), 304, "")

	r.expect(leave("drop-1", "bob"), 204, "")
	if left := shows("bob", "left", 0, bob, mine); left.ClosedAt == "" {
		t.Error("it is not said when bob left")
	}
	r.expect(get(bob, "cy"), 404, "unknown-order")
	r.expect(cancel(bob, "bob"), 409, "not-cancellable")
	r.expect(get(bob+"/events", "bob").with("Last-Event-ID", "1"), 204, "")
	shows("cy", "waiting", 1, cy, mine)
	r.expect(get(cy, "cy").with("If-None-Match", tag), 200, "")

	r.expect(cancel(ann, "ann"), 200, "")
	r.release()
	shows("cy", "queued", 0, cy, mine)
	r.persist(sale)
	if turn := shows("cy", "awaiting_payment", 0, cy, mine); turn.PayBy == "" {
		t.Error("the turn does not say until when to pay")
	}
	// Who ordered before and waits again sees what is waited for.
	again := decode[waitlistEntry](t, r.expect(join("drop-1", "ann", ""), 202, ""))
	if got := shows("ann", "waiting", 1, mine); got.OrderID != again.OrderID {
		t.Errorf("ann's order: got %s, want %s", got.OrderID, again.OrderID)
	}
	shows("ann", "cancelled", 0, ann)
	r.expect(get(mine, "dan"), 404, "unknown-order")
}

// TestEventsFollowATurn: a stream that was opened while the buyer waited brings the turn, and the time by which to pay.
func TestEventsFollowATurn(t *testing.T) {
	t.Parallel()
	r, sale, ann, bob, cy := waitRig(t, rigOptions{push: notification.HubConfig{SweepEvery: time.Hour}})
	first, second := r.follow(t, bob, "bob", ""), r.follow(t, cy, "cy", "")
	first.expect(" waiting")
	second.expect(" waiting")
	r.expect(leave("drop-1", "bob"), 204, "")
	first.expect("1 left", "end")
	r.expect(cancel(ann, "ann"), 200, "")
	r.release()
	second.expect("0 queued")
	r.persist(sale)
	r.notify(sale, cy)
	second.expect("1 awaiting_payment")
	if second.last.PayBy == "" {
		t.Error("the event of the turn does not say until when to pay")
	}
	r.follow(t, cy, "cy", "0").expect("1 awaiting_payment")
}

// TestEventsOfAPlace: without any notification, the place in the list and the turn are found at the heartbeat.
func TestEventsOfAPlace(t *testing.T) {
	t.Parallel()
	r, sale, ann, bob, cy := waitRig(t, rigOptions{
		push: notification.HubConfig{SweepEvery: 20 * time.Millisecond}, deps: heartbeats(10 * time.Millisecond),
	})
	f := r.follow(t, cy, "cy", "")
	f.expect(" waiting")
	if f.last.Position != 2 {
		t.Errorf("position: got %d, want 2", f.last.Position)
	}
	r.expect(leave("drop-1", "bob"), 204, "")
	f.skipPings(" waiting")
	if f.last.Position != 1 {
		t.Errorf("position: got %d, want 1", f.last.Position)
	}
	r.expect(cancel(ann, "ann"), 200, "")
	r.release()
	f.skipPings("0 queued")
	r.persist(sale)
	f.skipPings("1 awaiting_payment")
	r.expect(get(bob, "bob"), 200, "")
}

// skipPings demands the next event that is no heartbeat.
func (f *follower) skipPings(want string) {
	f.t.Helper()
	got := f.next()
	for got == "ping" {
		got = f.next()
	}
	if got != want {
		f.t.Fatalf("got %q, want %q", got, want)
	}
}
