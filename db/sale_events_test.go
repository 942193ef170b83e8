package db_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/pipeline"
	"sluice/webhook"
)

// saleEvents are all events that were written, in the order of their ids, without those of orders.
func (f *fixture) saleEvents() string {
	f.Helper()
	return one[string](f, `
		select coalesce(string_agg(type, ' ' order by id), '') from outbox where type not like 'order.%'`)
}

func (f *fixture) announce() int {
	f.Helper()
	n, err := f.store.AnnounceSalePhases(f.ctx(), 100)
	if err != nil {
		f.Fatal(err)
	}
	return n
}

func (f *fixture) change(id string, c pipeline.SaleChange) {
	f.Helper()
	if _, err := f.store.ChangeSale(f.ctx(), id, "test", c); err != nil {
		f.Fatal(err)
	}
}

// join records the waitlist entry from which an order was made.
func (f *fixture) join(e pipeline.Event, ticket int64) {
	f.Helper()
	f.joined(pipeline.WaitlistEntry{
		SaleID: e.SaleID, OrderID: e.OrderID, UserID: e.UserID, Number: e.Number, Quantity: e.Quantity,
		Partition: e.Partition, Ticket: ticket, JoinedAt: e.AcceptedAt,
	})
}

// window is a sale's window, so many hours from now.
func window(opens, closes int) pipeline.SaleChange {
	hours := func(n int) time.Time { return time.Now().Add(time.Duration(n) * time.Hour) }
	from, to := hours(opens), hours(closes)
	return pipeline.SaleChange{OpensAt: &from, ClosesAt: &to}
}

func state(s pipeline.SaleState) pipeline.SaleChange { return pipeline.SaleChange{State: &s} }

// Every change of a sale is one event, in the transaction of the change; a change that changes nothing is none.
func TestEveryChangeOfASaleIsAnEvent(t *testing.T) {
	f := setup(t)
	f.sale("unheard", 5)
	f.endpoint()
	f.sale("drop", 5)
	f.change("drop", pipeline.SaleChange{AddStock: 2})
	for _, s := range []pipeline.SaleState{"paused", "paused", "active", "active"} {
		f.change("drop", state(s))
	}
	f.change("drop", window(-1, 1))
	both := window(-2, 2)
	both.AddStock = 1
	f.change("drop", both)
	f.exec(`update sales set title = 'not a change of the definition'`)
	f.change("drop", state("closed"))
	want := "sale.created sale.restocked sale.paused sale.resumed sale.rescheduled sale.restocked sale.rescheduled " +
		"sale.closed"
	if got := f.saleEvents(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := one[string](f, `select string_agg(data ->> 'added', ' ' order by id) from outbox
		where type = 'sale.restocked' and sale_id = 'drop'`); got != "2 1" {
		t.Errorf("units added: got %s, want 2 1", got)
	}
	for _, kind := range strings.Fields(want) {
		if err := webhook.ValidateTypes([]string{kind}); err != nil {
			t.Error(err)
		}
	}
}

// What becomes true by time is announced once, however many look for it and whatever an operator does before and after.
func TestASaleOpensAndClosesOnce(t *testing.T) {
	f := setup(t)
	f.endpoint()
	sale := newSale("drop", 5)
	sale.OpensAt, sale.ClosesAt = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
	f.create(sale)
	step := func(what, want string) {
		t.Helper()
		f.announce()
		if n := f.announce(); n != 0 {
			t.Errorf("%s: announced %d sales again", what, n)
		}
		if got := f.saleEvents(); got != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
		f.exec(`delete from outbox`)
	}
	step("scheduled", "sale.created")
	f.change("drop", state("paused"))
	f.change("drop", window(-1, 1))
	step("its window begins while it is paused", "sale.paused sale.rescheduled")
	f.change("drop", state("active"))
	step("resumed", "sale.resumed sale.opened")
	f.change("drop", window(-1, 2))
	step("extended", "sale.rescheduled")
	f.change("drop", window(-2, -1))
	step("over", "sale.rescheduled sale.closed")
	f.change("drop", window(-2, 1))
	step("open again", "sale.rescheduled sale.opened")
	f.change("drop", window(1, 2))
	step("moved", "sale.rescheduled")
	f.change("drop", window(-1, 1))
	step("open for the third time", "sale.rescheduled sale.opened")
	f.change("drop", state("closed"))
	step("closed by an operator", "sale.closed")
	f.exec(`update sales set closes_at = now() - interval '1 minute'`)
	step("and then by time", "")
}

// Sales that open while several workers look, and one that an operator closes at the same moment.
func TestManyAnnounceASaleOnce(t *testing.T) {
	f := setup(t)
	f.endpoint()
	const sales = 20
	for i := range sales {
		sale := newSale(fmt.Sprint("drop-", i), 5)
		sale.OpensAt, sale.ClosesAt = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		f.create(sale)
	}
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for range 5 {
				if _, err := f.store.AnnounceSalePhases(t.Context(), 3); err != nil {
					t.Errorf("announce: %v", err)
				}
			}
		})
	}
	work.Go(func() {
		for i := range sales {
			if _, err := f.store.ChangeSale(t.Context(), fmt.Sprint("drop-", i), "test", state("closed")); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	})
	work.Wait()
	f.announce()
	wrong := one[int](f, `
		select count(*) from (
			select sale_id, string_agg(type, ' ' order by id) as all_of_it from outbox group by sale_id
		) s where all_of_it not in ('sale.created sale.closed', 'sale.created sale.opened sale.closed')`)
	if wrong != 0 || one[int](f, `select count(*) from outbox where type = 'sale.closed'`) != sales {
		t.Errorf("%d sales were announced wrongly: %s", wrong, f.saleEvents())
	}
}

// A turn on the waitlist is one event, with the time by which to pay: whether its entry is recorded before the order,
// after it or never.
func TestATurnIsAnEvent(t *testing.T) {
	f := setup(t)
	f.endpoint()
	sale := newSale("drop", 10)
	sale.Waitlist = 5
	f.create(sale)
	f.sale("plain", 10)
	placed, handed, unnoted := event("drop", "ann", 1, 1), event("drop", "bob", 1, 2), event("drop", "cy", 1, 3)
	handed.Ticket = 7
	f.join(unnoted, 8) // its event was written again, without the ticket
	elsewhere := event("plain", "ann", 1, 1)
	for range 2 {
		f.persist(placed, handed, unnoted, elsewhere)
	}
	f.join(handed, 7) // its api answers late
	rows, err := f.raw.Query(f.ctx(), `
		select data ->> 'user_id', data ->> 'status', data ->> 'order_number' = o.number::text,
			data ->> 'pay_by' = event_time(o.pay_by)
		from outbox join orders o on o.id = order_id where type = 'waitlist.turn' order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var user, status string
		var number, payBy bool
		if err := rows.Scan(&user, &status, &number, &payBy); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(user, " ", status, " ", number, " ", payBy))
	}
	wantEvents(t, got, "bob awaiting_payment true true", "cy awaiting_payment true true")
	if n := one[int](f, `select count(*) from outbox where type = 'order.awaiting_payment'`); n != 4 {
		t.Errorf("%d orders await their payment, want 4", n)
	}
}
