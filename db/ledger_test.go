package db_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/pipeline"
)

func ledgerOrder(e pipeline.Event, status pipeline.OrderStatus) pipeline.LedgerOrder {
	o := pipeline.LedgerOrder{
		OrderID: e.OrderID, UserID: e.UserID, Quantity: e.Quantity, Partition: e.Partition, Sequence: e.Sequence,
		Status: status,
	}
	if status != "" {
		o.Number, o.AcceptedAt = e.Number, e.AcceptedAt
	}
	return o
}

// collect returns a callback that gathers, and what it gathered, by order id.
func collect() (func(pipeline.LedgerOrder) error, map[string]pipeline.LedgerOrder) {
	all := map[string]pipeline.LedgerOrder{}
	return func(o pipeline.LedgerOrder) error {
		if o.AcceptedAt = o.AcceptedAt.UTC(); o.Status == "" {
			o.AcceptedAt = time.Time{} // a release has its own time
		}
		all[o.OrderID] = o
		return nil
	}, all
}

func TestLedger(t *testing.T) {
	f := setup(t)
	f.sale("drop", 100)
	f.sale("other", 100)
	f.persist(events("other", 5)...)
	batch := make([]pipeline.Event, 6)
	for i := range batch {
		batch[i] = event("drop", fmt.Sprint("u", i), i+1, int64(i+1))
		batch[i].Partition = pipeline.Partition(i % 2)
	}
	f.persist(batch...)
	f.exec(`update orders set status = 'paid', paid_at = now(), payment_id = 'p' where id = $1`, batch[1].OrderID)
	for i, applied := range map[int]any{4: nil, 5: "2026-11-01"} {
		f.exec(`update orders set status = 'expired', closed_at = now() where id = $1`, batch[i].OrderID)
		f.exec(`update sales set sold = sold - $1 where id = 'drop'`, batch[i].Quantity)
		f.exec(`
			insert into releases (sale_id, order_id, sequence, user_id, quantity, partition, reason, applied_at)
			select sale_id, id, sequence, user_id, quantity, partition, 'expired', $2::text::timestamptz from orders where id = $1`,
			batch[i].OrderID, applied)
	}
	inFlight := []string{batch[0].OrderID, batch[4].OrderID, event("drop", "x", 1, 1).OrderID, "no-uuid", ""}
	addLive, live := collect()
	addUnapplied, unapplied := collect()
	addKnown, known := collect()
	before := f.state()
	got, err := f.store.Ledger(f.ctx(), "drop", slices.Values(inFlight), addKnown, addLive, addUnapplied)
	if err != nil {
		t.Fatal(err)
	}
	if f.state() != before {
		t.Error("reading wrote something")
	}
	const awaiting, paid, expired = pipeline.StatusAwaitingPayment, pipeline.StatusPaid, pipeline.StatusExpired
	want := pipeline.Ledger{
		Total: 100, Sold: 1 + 2 + 3 + 4, Version: 1, LiveUnits: 1 + 2 + 3 + 4, Orders: 6,
		ByStatus:    map[pipeline.OrderStatus]int64{awaiting: 3, paid: 1, expired: 2},
		ByPartition: map[pipeline.Partition]int64{0: 3, 1: 3},
		Watermarks:  map[pipeline.Partition]int64{0: 5, 1: 6},
		Applied:     map[pipeline.Partition]int64{1: 1},
		Withdrawn:   map[pipeline.Partition]int64{},
		LostOn:      map[pipeline.Partition]int64{},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	wantLive := map[string]pipeline.LedgerOrder{}
	for i, status := range []pipeline.OrderStatus{awaiting, paid, awaiting, awaiting} {
		wantLive[batch[i].OrderID] = ledgerOrder(batch[i], status)
	}
	wantKnown := map[string]pipeline.LedgerOrder{
		batch[0].OrderID: ledgerOrder(batch[0], awaiting), batch[4].OrderID: ledgerOrder(batch[4], expired),
	}
	if !maps.Equal(known, wantKnown) {
		t.Errorf("known: got %v, want %v", known, wantKnown)
	}
	if !maps.Equal(live, wantLive) {
		t.Errorf("live: got %v, want %v", live, wantLive)
	}
	if want := map[string]pipeline.LedgerOrder{batch[4].OrderID: ledgerOrder(batch[4], "")}; !maps.Equal(unapplied, want) {
		t.Errorf("unapplied: got %v, want %v", unapplied, want)
	}
}

func TestLedgerOfNothing(t *testing.T) {
	f := setup(t)
	for _, id := range []string{"none", "", "a\x00b"} {
		_, err := f.store.Ledger(f.ctx(), id, nil, nil, nil, nil)
		wantKind(t, err, pipeline.KindNotFound)
	}
	f.sale("empty", 7)
	got, err := f.store.Ledger(f.ctx(), "empty", nil, nil, nil, nil)
	if err != nil || got.Total != 7 || got.Orders != 0 {
		t.Errorf("got %+v, %v, want an empty ledger", got, err)
	}
}

// Everything is one snapshot: while batches pour in, counter, rows and streamed orders always agree.
func TestLedgerIsOneInstant(t *testing.T) {
	f := setup(t)
	const n = 4000
	f.sale("drop", n)
	all := events("drop", n)
	var writer sync.WaitGroup
	writer.Go(func() {
		for batch := range slices.Chunk(all, 40) {
			if _, err := f.store.PersistOrders(f.ctx(), 1, batch); err != nil {
				t.Error(err)
				return
			}
		}
	})
	ids := make([]string, n)
	for i, e := range all {
		ids[i] = e.OrderID
	}
	partly := 0
	for sold := int64(0); sold < n && !t.Failed(); {
		var units, known int64
		count := func(pipeline.LedgerOrder) error {
			known++
			return nil
		}
		ledger, err := f.store.Ledger(f.ctx(), "drop", slices.Values(ids), count, func(o pipeline.LedgerOrder) error {
			units += int64(o.Quantity)
			return nil
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		sold = ledger.Sold
		if ledger.LiveUnits != sold || units != sold || ledger.Orders != sold || known != sold ||
			ledger.Watermarks[3] != sold {
			t.Fatalf("sold %d, live %d, streamed %d, rows %d, known %d, watermark %d: not one instant", sold,
				ledger.LiveUnits, units, ledger.Orders, known, ledger.Watermarks[3])
		}
		if sold > 0 && sold < n {
			partly++
		}
	}
	writer.Wait()
	if partly == 0 {
		t.Error("no ledger was read while batches came in")
	}
}

// An error of the caller ends the reading at once, is returned as it is, and leaves the store usable.
func TestLedgerCallbackError(t *testing.T) {
	f := setup(t)
	f.sale("drop", 5000)
	for batch := range slices.Chunk(events("drop", 5000), 1000) {
		f.persist(batch...)
	}
	broken := errors.New("the caller's own")
	for range 20 { // more often than the pool has connections
		calls := 0
		_, err := f.store.Ledger(f.ctx(), "drop", nil, nil, func(pipeline.LedgerOrder) error {
			if calls++; calls == 3 {
				return broken
			}
			return nil
		}, nil)
		if !errors.Is(err, broken) || pipeline.KindOf(err) != "" || calls != 3 {
			t.Fatalf("got %v after %d calls, want the caller's own error after 3", err, calls)
		}
	}
	if err := f.store.Ping(f.ctx()); err != nil {
		t.Error(err)
	}
}

// More orders in flight than one query looks up.
func TestLedgerManyInFlight(t *testing.T) {
	f := setup(t)
	f.sale("drop", 10)
	known := event("drop", "u", 1, 1)
	f.persist(known)
	ids := make([]string, 12001)
	for i := range ids {
		ids[i] = fmt.Sprintf("0191d7c6-0000-7000-8000-%012d", i)
	}
	ids[12000] = strings.ToUpper(known.OrderID)
	addKnown, found := collect()
	_, err := f.store.Ledger(f.ctx(), "drop", slices.Values(ids), addKnown, nil, nil)
	if _, ok := found[known.OrderID]; err != nil || len(found) != 1 || !ok {
		t.Errorf("got %v, %v, want the one order", found, err)
	}
}
