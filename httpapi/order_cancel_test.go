package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
)

// cancel asks to cancel the order at a path.
func cancel(path, user string) call {
	return call{method: http.MethodPost, path: path + "/cancel"}.with("X-User-Id", user)
}

func giveCancel(t *testing.T, c *contract) {
	r := newRig(t, rigOptions{contract: c})
	sale := r.create(newSale("drop-1", 10))
	path := r.expect(order("drop-1", "ann", ""), 202, "").header.Get("Location")
	queued := r.expect(cancel(path, "ann"), 409, "order-queued")
	if queued.header.Get("Retry-After") != "1" || queued.problem().OrderID == "" {
		t.Errorf("a queued order: %v %s", queued.header, queued.body)
	}
	r.persist(sale)
	r.expect(cancel(path, "ann{}"), 400, "invalid-request")
	r.expect(cancel(path, ""), 401, "unauthenticated")
	r.expect(cancel(path, "bob"), 404, "unknown-order")
	r.expect(cancel(strings.Replace(path, "drop-1", "drop-2", 1), "ann"), 404, "unknown-sale")
	r.expect(cancel(path, breakingUser), 500, "internal")
	first := r.expect(cancel(path, "ann"), 200, "")
	if got := decode[orderView](t, first); got.Status != "cancelled" {
		t.Errorf("cancelled: got %s", first.body)
	}
	again := r.expect(cancel(path, "ann"), 200, "")
	if string(again.body) != string(first.body) {
		t.Errorf("cancelled again: got %s, want %s", again.body, first.body)
	}
	other := r.expect(order("drop-1", "bob", ""), 202, "").header.Get("Location")
	r.persist(sale)
	r.exec(`update orders set pay_by = now() - interval '1 s' where user_id = 'bob'`)
	if expired, err := r.store.ExpireOrders(t.Context(), 1); err != nil || len(expired) != 1 {
		t.Fatalf("expire: %v, %v", expired, err)
	}
	r.expect(cancel(other, "bob"), 409, "not-cancellable")
}

// TestCancelledUnitsAreOnSaleAgain: the only unit goes to another buyer, and the first one may order again too.
func TestCancelledUnitsAreOnSaleAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	sale := r.create(newSale("drop-1", 1))
	path := r.expect(order("drop-1", "ann", ""), 202, "").header.Get("Location")
	r.persist(sale)
	r.expect(order("drop-1", "bob", ""), 409, "sold-out")
	r.expect(cancel(path, "ann"), 200, "")
	r.release()
	r.expect(cancel(path, "ann"), 200, "") // a second release of nothing
	r.release()
	got := r.expect(order("drop-1", "bob", ""), 202, "").header.Get("Location")
	r.persist(sale)
	r.expect(order("drop-1", "ann", ""), 409, "sold-out")
	r.expect(cancel(got, "bob"), 200, "")
	r.release()
	r.expect(order("drop-1", "ann", ""), 202, "")
}

// release gives back what is due, as a worker does.
func (r *rig) release() {
	r.t.Helper()
	releaser := r.parts().Releaser()
	if err := releaser.Apply(r.t.Context()); err != nil {
		r.t.Fatalf("release: %v", err)
	}
}

// TestAKeyAnswersWithItsOrderForGood: however often a request is repeated under its key, it gets the first answer, also
// once its order is cancelled; another key makes another order.
func TestAKeyAnswersWithItsOrderForGood(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	sale := r.create(newSale("drop-1", 2))
	first := r.expect(order("drop-1", "ann", "").with("Idempotency-Key", "a1"), 202, "")
	r.persist(sale)
	r.expect(cancel(first.header.Get("Location"), "ann"), 200, "")
	r.release()
	again := r.expect(order("drop-1", "ann", "").with("Idempotency-Key", "a1"), 202, "")
	if string(again.body) != string(first.body) {
		t.Errorf("the same key after the cancellation: got %s, want %s", again.body, first.body)
	}
	r.expect(order("drop-1", "ann", `{"quantity":2}`).with("Idempotency-Key", "a1"), 422, "idempotency-key-reused")
	second := r.expect(order("drop-1", "ann", "").with("Idempotency-Key", "a2"), 202, "")
	if second.header.Get("Location") == first.header.Get("Location") {
		t.Error("another key got the order that was cancelled")
	}
}
