package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/notification"
)

// wait lets a call wait for its order to be stored.
func (c call) wait(seconds string) call { return c.with("Prefer", "respond-async, wait="+seconds) }

// asked sends a call that waits, and returns its reply once it is there.
func (r *rig) asked(c call) <-chan reply {
	got := make(chan reply, 1)
	go func() {
		defer close(got)
		answer, err := r.try(c)
		if err != nil {
			r.t.Error(err)
		}
		got <- answer
	}()
	return got
}

// queued waits until a stream has so many events.
func (r *rig) queued(s *pipeline.Sale, events int64) {
	r.t.Helper()
	testkit.Eventually(r.t, time.Minute, "the orders to be accepted", func() bool {
		n, err := r.rdb.XLen(r.t.Context(), r.keys.Orders(s.Partitions[0])).Result()
		return err == nil && n == events
	})
}

// notify publishes that the orders at these paths changed.
func (r *rig) notify(s *pipeline.Sale, paths ...string) {
	var changed []notification.Change
	for _, path := range paths {
		changed = append(changed, notification.Change{
			Partition: s.Partitions[0], SaleID: s.ID,
			OrderID: path[strings.LastIndex(path, "/")+1:],
		})
	}
	r.parts().Notifier().Publish(r.t.Context(), changed)
}

// reject makes the orders that are stored from now on rejected ones.
func (r *rig) reject() {
	r.exec(`create function reject() returns trigger language plpgsql as $$ begin
		new.status := 'rejected'; new.reason := 'buyer-conflict'; new.closed_at := now(); new.pay_by := null; return new; end $$`)
	r.exec(`create trigger reject before insert on orders for each row execute function reject()`)
}

func giveWait(t *testing.T, c *contract) {
	r := newRig(t, rigOptions{contract: c})
	sale := r.create(newSale("drop-1", 10))
	got := r.asked(order("drop-1", "ann", "").wait("30"))
	r.queued(sale, 1)
	r.persist(sale)
	if answer := <-got; answer.status != 201 {
		t.Errorf("got %d %s, want 201", answer.status, answer.body)
	}
	r.reject()
	got = r.asked(order("drop-1", "bob", "").wait("30"))
	r.queued(sale, 2)
	r.persist(sale)
	answer := <-got
	if answer.status != 409 || answer.code() != "order-rejected" ||
		!strings.Contains(answer.problem().Detail, "buyer-conflict") ||
		!strings.HasSuffix(answer.header.Get("Location"), answer.problem().OrderID) {
		t.Errorf("got %d %v %s, want order-rejected with its reason and where the order is", answer.status, answer.header,
			answer.body)
	}
}

// TestWaitUntilStored: 201 with the order as it is in Postgres, also when the request is repeated.
func TestWaitUntilStored(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	sale := r.create(newSale("drop-1", 10))
	keyed := order("drop-1", "ann", `{"quantity":2}`).with("Idempotency-Key", "k").wait("30")
	first, second := r.asked(keyed), r.asked(keyed)
	r.queued(sale, 1)
	r.persist(sale)
	for _, got := range []reply{<-first, <-second, r.do(keyed)} {
		view := decode[orderView](t, got)
		if got.status != 201 || view.Status != "awaiting_payment" || got.header.Get("Preference-Applied") != "wait=30" {
			t.Fatalf("got %d %v %s", got.status, got.header, got.body)
		}
		shown := r.expect(get(got.header.Get("Location"), "ann"), 200, "")
		if string(shown.body) != string(got.body) {
			t.Errorf("got %s, want %s", got.body, shown.body)
		}
	}
	r.expect(keyed.with("Prefer", "wait=0"), 202, "")
	r.expect(order("drop-1", "ann", `{"quantity":1}`).with("Idempotency-Key", "k").wait("30"), 422,
		"idempotency-key-reused")
	if units := r.units(sale); units != 8 {
		t.Errorf("stock: got %d, want 8", units)
	}
}

// TestWaitInVain: without a worker the receipt comes at the deadline; what can't be read is no preference; and what is
// refused is refused at once.
func TestWaitInVain(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.create(newSale("drop-1", 2))
	got := r.expect(order("drop-1", "ann", "").wait("1"), 202, "")
	if got.took < time.Second || got.header.Get("Preference-Applied") != "wait=1" {
		t.Errorf("got an answer after %s, %v, want one after 1 s", got.took, got.header)
	}
	for _, other := range []string{"0", "x", "-1", ""} {
		if got := r.do(order("drop-1", "bob-"+other, "").wait(other)); got.header.Get("Preference-Applied") != "" {
			t.Errorf("wait=%s: got %v", other, got.header)
		}
	}
	r.expect(order("drop-1", "cy", "").wait("30"), 409, "sold-out")
}

// TestWaitWithoutRoom: where too many wait already the order is accepted all the same, without waiting.
func TestWaitWithoutRoom(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{push: notification.HubConfig{Limit: 1}})
	sale := r.create(newSale("drop-1", 10))
	got := r.asked(order("drop-1", "ann", "").wait("30"))
	r.watching(1)
	if got := r.expect(order("drop-1", "bob", "").wait("30"), 202, ""); got.header.Get("Preference-Applied") != "" {
		t.Errorf("got %v, want no preference applied", got.header)
	}
	r.persist(sale)
	if answer := <-got; answer.status != 201 {
		t.Errorf("ann: got %d, want 201", answer.status)
	}
}

// TestGoneWhileWaiting: the order of a client that does not wait to the end stands, and nobody waits for it any more.
func TestGoneWhileWaiting(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	sale := r.create(newSale("drop-1", 10))
	ctx, leave := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.address+"/v1/sales/drop-1/orders",
		http.NoBody)
	must(t, err)
	request.Header.Set("X-User-Id", "ann")
	request.Header.Set("Prefer", "wait=30")
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if response, err := r.client.Do(request); err == nil {
			_ = response.Body.Close()
		}
	}()
	r.watching(1)
	leave()
	<-gone
	r.watching(0)
	r.persist(sale)
	r.expect(get("/v1/sales/drop-1/orders/mine", "ann"), 200, "")
}

// TestStopWhileWaiting: a server that stops answers those who wait with their receipts.
func TestStopWhileWaiting(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.create(newSale("drop-1", 10))
	got := r.asked(order("drop-1", "ann", "").wait("30"))
	r.watching(1)
	r.endPush()
	if answer := <-got; answer.status != 202 || answer.header.Get("Preference-Applied") != "" {
		t.Errorf("got %d %v, want a receipt", answer.status, answer.header)
	}
	r.expect(order("drop-1", "bob", "").wait("30"), 202, "")
	r.expect(get("/v1/sales/drop-1/orders/mine", "ann"), 200, "")
}

// watching waits until there are so many subscribers.
func (r *rig) watching(n float64) {
	r.t.Helper()
	testkit.Eventually(r.t, time.Minute, "watches to begin or end", func() bool {
		families, err := r.pushes.Gather()
		if err != nil {
			return false
		}
		for _, f := range families {
			if f.GetName() == "sluice_push_waiting" {
				return f.GetMetric()[0].GetGauge().GetValue() == n
			}
		}
		return false
	})
}
