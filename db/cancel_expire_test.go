package db_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"sluice/pipeline"
)

// everyStatus is each status that a row can have.
var everyStatus = []pipeline.OrderStatus{
	pipeline.StatusAwaitingPayment, pipeline.StatusConfirmed, pipeline.StatusPaid, pipeline.StatusCancelled,
	pipeline.StatusExpired, pipeline.StatusRejected, pipeline.StatusRefundDue,
	pipeline.StatusReturned, pipeline.StatusRefunded,
}

// The table of transitions in Go and the trigger in Postgres agree about every pair of statuses.
func TestTransitions(t *testing.T) {
	f := setup(t)
	f.sale("drop", 10)
	order := event("drop", "ann", 1, 1)
	f.persist(order)
	put := func(status pipeline.OrderStatus) error {
		closed := "now()"
		if status.Live() {
			closed = "null"
		}
		_, err := f.raw.Exec(f.ctx(), `
			update orders set status = $2, reason = 'r', paid_at = now(), payment_id = 'p', closed_at = `+closed+`
			where sale_id = 'drop' and id = $1`, order.OrderID, status)
		return err
	}
	for _, from := range everyStatus {
		for _, to := range everyStatus {
			f.exec(`alter table orders disable trigger user`)
			if err := put(from); err != nil {
				t.Fatal(err)
			}
			f.exec(`alter table orders enable trigger user`)
			before := one[int](f, `select version from orders`)
			err := put(to)
			legal := from == to || slices.Contains(pipeline.Transitions[from], to)
			if legal != (err == nil) {
				t.Errorf("%s to %s: legal %t, Postgres returned %v", from, to, legal, err)
			}
			counted := one[int](f, `select version from orders`) - before
			if want := from != to && err == nil; (counted == 1) != want || counted > 1 {
				t.Errorf("%s to %s: the version moved by %d", from, to, counted)
			}
		}
	}
}

// owed counts a sale's releases.
func (f *fixture) owed(saleID string) int64 {
	f.Helper()
	return one[int64](f, `select count(*) from releases where sale_id = $1`, saleID)
}

func (f *fixture) overdue() { f.exec(`update orders set pay_by = now() - interval '1 second'`) }

func TestExpire(t *testing.T) {
	f := setup(t)
	f.sale("drop", 100)
	f.freeSale("free", 100)
	f.persist(append(events("drop", 7), events("free", 3)...)...)
	if got, err := f.store.ExpireOrders(f.ctx(), 10); err != nil || len(got) != 0 {
		t.Fatalf("before they are due: %d expired, %v", len(got), err)
	}
	f.overdue()
	for _, want := range []int{5, 2, 0} {
		got, err := f.store.ExpireOrders(f.ctx(), 5)
		if err != nil || len(got) != want {
			t.Fatalf("%d expired, %v; want %d", len(got), err, want)
		}
		for _, o := range got {
			if o.Status != pipeline.StatusExpired || o.ClosedAt.IsZero() || o.Version != 2 || o.SaleID != "drop" {
				t.Errorf("expired order: %+v", o)
			}
		}
	}
	if got, want := f.books("drop"), (books{0, 0, 7}); got != want || f.owed("drop") != 7 {
		t.Errorf("got %+v and %d releases, want %+v and 7", got, f.owed("drop"), want)
	}
	if got, want := f.books("free"), (books{3, 3, 3}); got != want || f.owed("free") != 0 {
		t.Errorf("orders without payment: got %+v and %d releases", got, f.owed("free"))
	}
}

func TestCancel(t *testing.T) {
	f := setup(t)
	f.sale("drop", 100)
	order := event("drop", "ann", 3, 1)
	f.persist(order, event("drop", "bob", 1, 2))
	for _, no := range [][2]string{{order.OrderID, "bob"}, {"01971f4e-8a3b-7c5d-9e2f-1a2b3c4d5e6f", "ann"}, {"x", "ann"}} {
		_, _, err := f.store.CancelOrder(f.ctx(), "drop", no[0], no[1])
		wantKind(t, err, pipeline.KindNotFound)
	}
	for i := range 3 {
		got, changed, err := f.store.CancelOrder(f.ctx(), "drop", order.OrderID, "ann")
		if err != nil || changed != (i == 0) || got.Status != pipeline.StatusCancelled {
			t.Fatalf("call %d: got %s, %t, %v", i, got.Status, changed, err)
		}
	}
	if got, want := f.books("drop"), (books{1, 1, 2}); got != want || f.owed("drop") != 1 {
		t.Errorf("got %+v and %d releases, want %+v and 1", got, f.owed("drop"), want)
	}
}

// Many expiries and cancellations of the same orders at once, with persists of the same sale between: each order ends
// once, and is owed once.
func TestEndingsRace(t *testing.T) {
	f := setup(t)
	const n = 300
	f.sale("drop", 2*n)
	batch := events("drop", n)
	f.persist(batch...)
	f.overdue()
	var mu sync.Mutex
	ends := map[string]int{}
	note := func(id string) {
		mu.Lock()
		defer mu.Unlock()
		ends[id]++
	}
	var racers sync.WaitGroup
	for range 4 {
		racers.Go(func() {
			for {
				expired, err := f.store.ExpireOrders(t.Context(), 7)
				if err != nil {
					t.Errorf("expire: %v", err)
					return
				}
				for _, o := range expired {
					note(o.ID)
				}
				var left int
				err = f.raw.QueryRow(t.Context(), `
					select count(*) from orders where status = 'awaiting_payment' and pay_by < now()`).Scan(&left)
				if err != nil || left == 0 {
					return // an error shows in what is left
				}
			}
		})
	}
	for part := range slices.Chunk(batch, n/3) {
		racers.Go(func() {
			for _, e := range part {
				_, changed, err := f.store.CancelOrder(t.Context(), "drop", e.OrderID, e.UserID)
				if err != nil {
					t.Errorf("cancel: %v", err)
				} else if changed {
					note(e.OrderID)
				}
			}
		})
	}
	racers.Go(func() {
		for i := range 30 {
			late := event("drop", "late-"+time.Duration(i).String(), 1, int64(n+i+1))
			if _, err := f.store.PersistOrders(t.Context(), 1, []pipeline.Event{late}); err != nil {
				t.Errorf("persist: %v", err)
			}
		}
	})
	racers.Wait()
	for _, e := range batch {
		if ends[e.OrderID] != 1 {
			t.Errorf("order %s ended %d times", e.OrderID, ends[e.OrderID])
		}
	}
	if got, want := f.books("drop"), (books{30, 30, n + 30}); got != want || f.owed("drop") != n {
		t.Errorf("got %+v and %d releases, want %+v and %d", got, f.owed("drop"), want, n)
	}
}
