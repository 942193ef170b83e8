package db_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline/deadletter"
	"sluice/webhook"
)

// sequence makes everything that is committed readable.
func (f *fixture) sequence() {
	f.Helper()
	for {
		given, err := f.store.SequenceEvents(f.ctx(), 7)
		if err != nil {
			f.Fatal(err)
		}
		if given == 0 {
			return
		}
	}
}

// eventsAfter are the events after a position, as "type order version".
func (f *fixture) eventsAfter(after int64, types ...string) []string {
	f.Helper()
	events, err := f.store.NextEvents(f.ctx(), after, types, 10_000)
	if err != nil {
		f.Fatal(err)
	}
	var list []string
	for _, e := range events {
		if e.Data == nil {
			list = append(list, "-")
			continue
		}
		list = append(list, strings.TrimSpace(e.Type+" "+e.OrderID))
	}
	return list
}

func wantEvents(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("events:\n got %q\nwant %q", got, want)
	}
}

// Every way in which an order changes leaves its event, and what changes nothing leaves none.
func TestEveryChangeIsAnEvent(t *testing.T) {
	f := setup(t)
	f.sale("drop", 100)
	f.freeSale("free", 100)
	unheard := event("free", "nobody-listens", 1, 1)
	f.persist(unheard)
	f.endpoint()
	batch := append(events("drop", 4), event("free", "ann", 2, 2))
	f.persist(batch...)
	f.persist(batch...) // again: no row, no event
	mixed := event("free", "bob", 1, 3)
	f.persist(append(slices.Clone(batch), mixed)...)
	f.exec(`update orders set status = 'paid', paid_at = now(), payment_id = 'p' where id = $1`, batch[0].OrderID)
	f.exec(`update orders set payment_id = 'q' where id = $1`, batch[0].OrderID) // no change of status
	f.cancel(batch[1])
	f.cancel(batch[1])
	f.exec(`update orders set pay_by = now() - interval '1 second' where id = $1`, batch[2].OrderID)
	if _, err := f.store.ExpireOrders(f.ctx(), 10); err != nil {
		t.Fatal(err)
	}
	f.exec(`update orders set status = 'refund_due' where id = $1`, batch[2].OrderID)
	poison := event("drop", "eve", 1, 99)
	for range 2 {
		letter := deadletter.Message{EntryID: "1-1", Reason: deadletter.Undecodable}
		if err := f.store.BuryEvent(f.ctx(), letter, &poison); err != nil {
			t.Fatal(err)
		}
	}
	wantEvents(t, f.eventsAfter(0))
	f.sequence()
	var awaiting []string
	for _, e := range batch[:4] {
		awaiting = append(awaiting, "order.awaiting_payment "+e.OrderID)
	}
	wantEvents(t, f.eventsAfter(0), append(awaiting,
		"order.confirmed "+batch[4].OrderID, "order.confirmed "+mixed.OrderID, "order.paid "+batch[0].OrderID,
		"order.cancelled "+batch[1].OrderID, "order.expired "+batch[2].OrderID, "order.refund_due "+batch[2].OrderID,
		"order.rejected "+poison.OrderID)...)
	wantEvents(t, f.eventsAfter(6, webhook.TypeOrderExpired, webhook.TypeOrderRejected),
		"-", "-", "order.expired "+batch[2].OrderID, "-", "order.rejected "+poison.OrderID)
	types := strings.Fields(one[string](f, `select string_agg(distinct type, ' ' order by type) from outbox`))
	if len(types) != 7 {
		t.Errorf("types: %q", types)
	}
	for _, known := range types {
		if !slices.Contains(webhook.Types, known) {
			t.Errorf("no endpoint can choose %s", known)
		}
	}
}

func TestSoldOutIsAnEvent(t *testing.T) {
	f := setup(t)
	f.sale("drop", 3)
	f.endpoint(webhook.TypeSaleSoldOut)
	batch := events("drop", 4)
	f.persist(batch[:2]...)
	f.sequence()
	wantEvents(t, f.eventsAfter(0, webhook.TypeSaleSoldOut), "-", "-")
	f.persist(batch[2])
	f.exec(`update sales set title = 'still sold out'`)
	f.cancel(batch[0])
	f.persist(batch[3])
	f.sequence()
	wantEvents(t, f.eventsAfter(2, webhook.TypeSaleSoldOut), "-", "sale.sold_out", "-", "-", "sale.sold_out")
	want := map[string]any{
		"sale_id": "drop", "title": "A thing", "state": "active", "total": 3.0, "sold": 3.0, "max_quantity": 10.0,
		"opens_at": "2026-11-01T12:00:00.000Z", "closes_at": "2026-11-01T13:00:00.000Z",
		"payment_window_seconds": 900.0, "waitlist": 0.0, "version": 1.0, "entry_ticket": false,
	}
	got := one[map[string]any](f, `select data from outbox where type = 'sale.sold_out' order by id limit 1`)
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRolledBackIsNoEvent(t *testing.T) {
	f := setup(t)
	f.sale("drop", 2)
	f.endpoint()
	batch := events("drop", 3)
	if _, err := f.store.PersistOrders(f.ctx(), 1, batch); err == nil { // more units than the sale has
		t.Fatal("oversold")
	}
	f.persist(batch[0])
	tx, err := f.raw.Begin(f.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(f.ctx(), `update orders set status = 'cancelled', closed_at = now()`); err != nil {
		t.Fatal(err)
	}
	f.sequence()
	if err := tx.Rollback(f.ctx()); err != nil {
		t.Fatal(err)
	}
	f.sequence()
	wantEvents(t, f.eventsAfter(0), "order.awaiting_payment "+batch[0].OrderID)
}

// Transactions that begin first and commit last: a reader in the meantime skips none of their events.
func TestLateCommitsAreNotSkipped(t *testing.T) {
	f := setup(t)
	f.endpoint()
	note := func(tx pgx.Tx, name string) {
		t.Helper()
		if _, err := tx.Exec(f.ctx(), `insert into outbox (type, sale_id, data) values ($1, 'drop', '{}')`,
			name); err != nil {
			t.Fatal(err)
		}
	}
	var open [3]pgx.Tx
	for i := range open {
		tx, err := f.raw.Begin(f.ctx())
		if err != nil {
			t.Fatal(err)
		}
		note(tx, fmt.Sprint("open-", i)) // has the lower id
		open[i] = tx
	}
	var got []string
	cursor := int64(0)
	read := func() {
		t.Helper()
		f.sequence()
		events, err := f.store.NextEvents(f.ctx(), cursor, nil, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			got = append(got, e.Type)
			cursor = e.Position
		}
	}
	for i := range 2 {
		f.exec(`insert into outbox (type, sale_id, data) values ($1, 'drop', '{}')`, fmt.Sprint("done-", i))
		read()
	}
	for _, i := range []int{1, 2, 0} {
		note(open[i], fmt.Sprint("late-", i))
		if err := open[i].Commit(f.ctx()); err != nil {
			t.Fatal(err)
		}
		read()
	}
	wantEvents(t, got, "done-0", "done-1", "open-1", "late-1", "open-2", "late-2", "open-0", "late-0")
}

// A transaction that is older than an order changes it: its transaction id is lower than the one that made the order,
// and still the order's events come in the order in which they happened.
func TestOlderTransactionsChangeOrders(t *testing.T) {
	f := setup(t)
	f.sale("other", 10)
	f.freeSale("free", 10)
	f.endpoint()
	older, err := f.raw.Begin(f.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := older.Exec(f.ctx(), `update sales set title = 'gets a transaction id' where id = 'other'`); err != nil {
		t.Fatal(err)
	}
	e := event("free", "ann", 1, 1)
	f.persist(e)
	if _, err := older.Exec(f.ctx(), `update orders set status = 'cancelled', closed_at = now()`); err != nil {
		t.Fatal(err)
	}
	if err := older.Commit(f.ctx()); err != nil {
		t.Fatal(err)
	}
	f.sequence()
	wantEvents(t, f.eventsAfter(0), "order.confirmed "+e.OrderID, "order.cancelled "+e.OrderID)
}

// Writers and several sequencers at once, while a reader follows: it gets every event once, and those of an order in
// the order of their versions.
func TestReaderFollowsWriters(t *testing.T) {
	f := setup(t)
	const orders, writers = 60, 4
	f.freeSale("free", orders)
	f.endpoint()
	batch := events("free", orders)
	var work, background sync.WaitGroup
	done := make(chan struct{})
	for range 3 {
		background.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := f.store.SequenceEvents(t.Context(), 5); err != nil {
					t.Errorf("sequence: %v", err)
					return
				}
			}
		})
	}
	for part := range slices.Chunk(batch, orders/writers) {
		work.Go(func() {
			for i := range part {
				if _, err := f.store.PersistOrders(t.Context(), 1, part[i:i+1]); err != nil {
					t.Errorf("persist: %v", err)
				}
				if _, _, err := f.store.CancelOrder(t.Context(), "free", part[i].OrderID, part[i].UserID); err != nil {
					t.Errorf("cancel: %v", err)
				}
			}
		})
	}
	seen := map[string][]string{}
	cursor, n := int64(0), 0
	read := func() {
		events, err := f.store.NextEvents(f.ctx(), cursor, nil, 9)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Type != webhook.TypeSaleSoldOut {
				seen[e.OrderID] = append(seen[e.OrderID], e.Type)
				n++
			}
			cursor = e.Position
		}
	}
	for until := time.Now().Add(time.Minute); n < 2*orders && time.Now().Before(until); {
		read()
	}
	work.Wait()
	close(done)
	background.Wait()
	f.sequence()
	read()
	if n != 2*orders {
		t.Errorf("%d events, want %d", n, 2*orders)
	}
	for _, e := range batch {
		wantEvents(t, seen[e.OrderID], webhook.TypeOrderConfirmed, webhook.TypeOrderCancelled)
	}
}

// Events are kept for a week, and for endpoints that are still to receive them for two; what is dropped then is
// counted.
func TestPrune(t *testing.T) {
	f := setup(t)
	all, some := f.endpoint(), f.endpoint("a")
	f.exec(`
		insert into outbox (type, sale_id, data)
		select case when n % 2 = 0 then 'a' else 'b' end, 'drop', '{}' from generate_series(1, 10) n`)
	f.sequence()
	f.exec(`insert into outbox (type, sale_id, data, created_at)
		values ('a', 'drop', '{}', now() - interval '1 year')`) // no position yet
	f.exec(`update endpoints set cursor = 6, disabled_at = now(), disabled_reason = 'r' where id = $1`, all.ID)
	f.exec(`update endpoints set cursor = 9 where id = $1`, some.ID)
	prune := func(events, missed int) {
		t.Helper()
		if got, err := f.store.PruneEvents(f.ctx(), webhook.KeepDelivered, 100); err != nil ||
			got != (webhook.Pruned{Events: events, Missed: missed}) {
			t.Errorf("got %+v, %v, want %d and %d", got, err, events, missed)
		}
	}
	prune(0, 0)
	f.exec(`update outbox set created_at = now() - interval '8 days' where position <= 8`)
	prune(6, 0)
	prune(0, 0)
	f.exec(`update outbox set created_at = now() - interval '15 days' where position is not null`)
	prune(4, 5) // all misses 7 to 10, some misses 10 only
	if got := one[string](f, `select string_agg(missed::text, ' ' order by id) from endpoints`); got != "4 1" {
		t.Errorf("missed: %s", got)
	}
	if got := one[int](f, `select count(*) from outbox`); got != 1 {
		t.Errorf("%d events left, want the one without position", got)
	}
	f.sequence()
	if got := one[int64](f, `select position from outbox`); got != 11 {
		t.Errorf("position %d after all others are gone, want 11", got)
	}
}
