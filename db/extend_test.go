package db_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/lifecycle"
)

func extension(saleID, orderID string, by time.Duration) lifecycle.Extension {
	return lifecycle.Extension{
		SaleID: saleID, OrderID: orderID, Until: time.Now().Add(by).Truncate(time.Millisecond), Actor: "ann@shop",
		Reason: "the provider was down",
	}
}

// One order gets more time to pay: it does not expire, its readers see a newer version, and it is recorded. Repeating
// that changes nothing.
func TestExtendOneOrder(t *testing.T) {
	f := setup(t)
	f.sale("drop", 10)
	f.endpoint()
	late, other := event("drop", "ann", 1, 1), event("drop", "bob", 1, 2)
	f.persist(late, other)
	f.overdue()
	e := extension("drop", late.OrderID, time.Hour)
	order, changed, err := f.store.ExtendOrder(f.ctx(), e)
	if err != nil || !changed || !order.PayBy.Equal(e.Until) || order.Version != 2 ||
		order.Status != pipeline.StatusAwaitingPayment {
		t.Fatalf("extend: %+v, %t, %v", order, changed, err)
	}
	before := f.all()
	for _, again := range []lifecycle.Extension{e, extension("drop", late.OrderID, time.Minute)} {
		if order, changed, err = f.store.ExtendOrder(f.ctx(), again); err != nil || changed || !order.PayBy.Equal(e.Until) {
			t.Errorf("again: %+v, %t, %v", order, changed, err)
		}
	}
	if f.all() != before {
		t.Error("an extension that gives no time changed something")
	}
	expired, err := f.store.ExpireOrders(f.ctx(), 10)
	if err != nil || len(expired) != 1 || expired[0].ID != other.OrderID {
		t.Errorf("expired: %+v, %v, want the order that got no time", expired, err)
	}
	if _, changed, err = f.store.ExtendOrder(f.ctx(), extension("drop", other.OrderID, time.Hour)); err != nil || changed {
		t.Errorf("an expired order: %t, %v", changed, err)
	}
	f.sequence()
	wantEvents(t, f.eventsAfter(0),
		"order.awaiting_payment "+late.OrderID, "order.awaiting_payment "+other.OrderID,
		"order.extended "+late.OrderID, "order.expired "+other.OrderID)
	log := one[string](f, `select actor || ' ' || sale_id || ' ' || detail::text from audit_log where action = 'extend'`)
	for _, part := range []string{"ann@shop drop", late.OrderID, "the provider was down", `"after": {"pay_by": "`, `"orders": 1`} {
		if !strings.Contains(log, part) {
			t.Errorf("the audit log does not say %s: %s", part, log)
		}
	}
}

// All orders of a sale that await their payment get more time, page by page, and those of other sales don't.
func TestExtendASale(t *testing.T) {
	f := setup(t)
	f.sale("drop", 10)
	f.sale("other", 10)
	f.persist(append(events("drop", 5), events("other", 2)...)...)
	f.overdue()
	e := extension("drop", "", time.Hour)
	for _, want := range []int{3, 2, 0} {
		got, err := f.store.ExtendOrders(f.ctx(), e, 3)
		if err != nil || len(got) != want {
			t.Fatalf("extended %d, %v, want %d", len(got), err, want)
		}
	}
	if got := one[int64](f, `select sum((detail ->> 'orders')::integer) from audit_log where action = 'extend'`); got != 5 {
		t.Errorf("the audit log has %d orders, want 5", got)
	}
	expired, err := f.store.ExpireOrders(f.ctx(), 10)
	if err != nil || len(expired) != 2 || expired[0].SaleID != "other" {
		t.Errorf("expired: %+v, %v, want those of the other sale", expired, err)
	}
}

// An extension is bounded, and for what exists.
func TestExtensionsAreBounded(t *testing.T) {
	f := setup(t)
	f.sale("drop", 10)
	e := event("drop", "ann", 1, 1)
	f.persist(e)
	for name, by := range map[string]time.Duration{"past": -time.Minute, "far": lifecycle.MaxExtension + time.Minute} {
		_, _, err := f.store.ExtendOrder(f.ctx(), extension("drop", e.OrderID, by))
		wantKind(t, err, pipeline.KindInvalid)
		if _, err = f.store.ExtendOrders(f.ctx(), extension("drop", "", by), 10); pipeline.KindOf(err) != pipeline.KindInvalid {
			t.Errorf("%s, a sale: got %v", name, err)
		}
	}
	_, _, err := f.store.ExtendOrder(f.ctx(), extension("drop", event("drop", "x", 1, 2).OrderID, time.Hour))
	wantKind(t, err, pipeline.KindNotFound)
	_, err = f.store.ExtendOrders(f.ctx(), extension("none", "", time.Hour), 10)
	wantKind(t, err, pipeline.KindNotFound)
	if got := one[int](f, `select count(*) from audit_log where action = 'extend'`); got != 0 {
		t.Errorf("%d lines in the audit log", got)
	}
}

// Of an extension and an expiry at once one wins for each order, and no order is lost.
func TestExtensionsRaceWithExpiry(t *testing.T) {
	f := setup(t)
	f.sale("drop", 100)
	f.persist(events("drop", 40)...)
	f.overdue()
	var racers sync.WaitGroup
	var extended, expired int
	e := extension("drop", "", time.Hour)
	racers.Go(func() {
		for range 8 {
			got, err := f.store.ExtendOrders(t.Context(), e, 5)
			if err != nil {
				t.Errorf("extend: %v", err)
			}
			extended += len(got)
		}
	})
	racers.Go(func() {
		for range 8 {
			got, err := f.store.ExpireOrders(t.Context(), 5)
			if err != nil {
				t.Errorf("expire: %v", err)
			}
			expired += len(got)
		}
	})
	racers.Wait()
	if got := one[int](f, `select count(*) from orders where status = 'expired'`); got != expired {
		t.Errorf("%d orders are expired, %d were returned as such", got, expired)
	}
	if got := one[int](f,
		`select count(*) from orders where status = 'awaiting_payment' and pay_by > now()`); got != extended {
		t.Errorf("%d orders have time, %d were returned as extended", got, extended)
	}
	if got := f.books("drop"); got.sold != got.live {
		t.Errorf("books: %+v", got)
	}
}
