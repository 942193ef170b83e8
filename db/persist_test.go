package db_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/deadletter"
)

const (
	inserted       = pipeline.PersistInserted
	redelivered    = pipeline.PersistRedelivered
	readmitted     = pipeline.PersistResubmitted
	buyerConflict  = pipeline.PersistBuyerConflict
	numberConflict = pipeline.PersistNumberConflict
	unknownSale    = pipeline.PersistUnknownSale
)

func wantOutcomes(t *testing.T, got []pipeline.PersistOutcome, want ...pipeline.PersistOutcome) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("outcomes: got %v, want %v", got, want)
	}
}

func TestPersistWritesTheWholeOrder(t *testing.T) {
	f := setup(t)
	f.sale("drop", 100)
	f.freeSale("free", 100)
	paid, unpaid := event("drop", `Zoë'; drop table orders; -- "\🔑`, 3, 5), event("free", "u", 2, 9)
	unpaid.Partition = 4
	wantOutcomes(t, f.persist(paid, unpaid), inserted, inserted)

	for _, try := range []struct {
		event  pipeline.Event
		status pipeline.OrderStatus
		window time.Duration
	}{
		{paid, pipeline.StatusAwaitingPayment, 15 * time.Minute},
		{unpaid, pipeline.StatusConfirmed, 0},
	} {
		e := try.event
		got, err := f.store.Order(f.ctx(), e.SaleID, e.OrderID)
		if err != nil {
			t.Fatal(err)
		}
		want := pipeline.Order{
			SaleID: e.SaleID, ID: e.OrderID, Number: e.Number, UserID: e.UserID, Quantity: e.Quantity,
			Status: try.status, Partition: e.Partition, Sequence: e.Sequence, AcceptedAt: e.AcceptedAt,
			PersistedAt: got.PersistedAt, Version: 1,
		}
		if try.window > 0 {
			want.PayBy = got.PayBy
			if off := got.PayBy.Sub(got.PersistedAt) - try.window; off.Abs() > time.Minute {
				t.Errorf("the time to pay is wrong by %s", off)
			}
		}
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if since := time.Since(got.PersistedAt); since < -time.Minute || since > time.Minute {
			t.Errorf("persisted at %s, which is not now", got.PersistedAt)
		}
		if got, want := f.books(e.SaleID), (books{int64(e.Quantity), int64(e.Quantity), 1}); got != want {
			t.Errorf("sale %s: got %+v, want %+v", e.SaleID, got, want)
		}
		if got := f.watermark(e.SaleID, e.Partition); got != e.Sequence {
			t.Errorf("watermark of %s: got %d, want %d", e.SaleID, got, e.Sequence)
		}
	}
}

func TestPersistNothing(t *testing.T) {
	f := setup(t)
	before := f.state()
	wantOutcomes(t, f.persist())
	if f.state() != before {
		t.Error("no event, and yet something was written")
	}
}

// I6: whatever is delivered again, alone, mixed, within one batch, changes nothing.
func TestRedeliveryChangesNothing(t *testing.T) {
	f := setup(t)
	f.sale("drop", 100)
	batch := events("drop", 20)
	f.persist(batch...)
	before := f.state()
	for _, again := range [][]pipeline.Event{batch, {batch[7]}, {batch[3], batch[3], batch[2]}} {
		for _, outcome := range f.persist(again...) {
			if outcome != redelivered {
				t.Errorf("got %s, want %s", outcome, redelivered)
			}
		}
		if after := f.state(); after != before {
			t.Fatalf("something was written:\n%s\nbefore:\n%s", after, before)
		}
	}
	// A closed order is not raised from the dead either.
	f.exec(`update orders set status = 'expired', closed_at = now() where id = $1`, batch[0].OrderID)
	before = f.state()
	wantOutcomes(t, f.persist(batch[0]), redelivered)
	another := batch[0]
	another.Sequence += 100 // an accept of its own, which took units that must go back
	wantOutcomes(t, f.persist(another), readmitted)
	if f.state() != before {
		t.Error("the redelivery of a closed order changed something")
	}
}

func TestEveryOutcomeInOneBatch(t *testing.T) {
	f := setup(t)
	f.sale("a", 100)
	f.sale("b", 100)
	old := event("a", "old", 1, 1)
	f.persist(old)

	again := old
	again.Sequence = 8
	elsewhere := old
	elsewhere.Partition = 9
	fresh := event("b", "fresh", 2, 1)
	twice := fresh
	thrice := fresh
	thrice.Sequence = 7
	rival := event("a", "old", 1, 9)
	sameNumber := event("a", "other", 1, 10)
	sameNumber.Number = old.Number
	nowhere := event("nowhere", "u", 1, 1)
	plain := event("a", "plain", 3, 2)

	got := f.persist(again, nowhere, fresh, old, rival, twice, sameNumber, thrice, elsewhere, plain)
	wantOutcomes(t, got, redelivered, unknownSale, inserted, redelivered, buyerConflict, redelivered, numberConflict,
		redelivered, redelivered, inserted)
	if got, want := f.books("a"), (books{4, 4, 2}); got != want {
		t.Errorf("sale a: got %+v, want %+v", got, want)
	}
	if got, want := f.books("b"), (books{2, 2, 1}); got != want {
		t.Errorf("sale b: got %+v, want %+v", got, want)
	}
	if a, b := f.watermark("a", 3), f.watermark("b", 3); a != 2 || b != 1 {
		t.Errorf("watermarks: got %d and %d, want 2 and 1: only what was inserted counts", a, b)
	}
}

// A buyer whose order is closed may order again; and of two orders of one buyer in a batch the older one stands.
func TestOneLiveOrderPerBuyer(t *testing.T) {
	f := setup(t)
	f.sale("drop", 100)
	first, second := event("drop", "u", 1, 1), event("drop", "u", 1, 2)
	wantOutcomes(t, f.persist(second, first), buyerConflict, inserted)
	f.exec(`update orders set status = 'cancelled', closed_at = now() where id = $1`, first.OrderID)
	f.exec(`update sales set sold = sold - 1`)
	wantOutcomes(t, f.persist(second), inserted)
	if got, want := f.books("drop"), (books{1, 1, 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// I1: the constraint refuses the batch that would sell more than there is; the caller halves it and all that fits gets
// in.
func TestOversellIsRefused(t *testing.T) {
	f := setup(t)
	f.sale("drop", 10)
	f.persist(events("drop", 4)...)
	before := f.state()
	batch := make([]pipeline.Event, 8)
	for i := range batch {
		batch[i] = event("drop", fmt.Sprint("late-", i), 1, int64(5+i))
	}
	_, err := f.store.PersistOrders(f.ctx(), 1, batch)
	wantKind(t, err, pipeline.KindData)
	if !strings.Contains(err.Error(), "more units would be sold than the sale has") {
		t.Errorf("got %q, want the constraint in words", err)
	}
	if after := f.state(); after != before {
		t.Fatalf("something was written:\n%s\nbefore:\n%s", after, before)
	}
	if refused := f.bisect(batch); refused != 2 {
		t.Errorf("refused: got %d events, want 2", refused)
	}
	if got, want := f.books("drop"), (books{10, 10, 10}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// bisect persists as a worker does after a KindData error, and returns how many events are refused one by one.
func (f *fixture) bisect(batch []pipeline.Event) int {
	f.Helper()
	_, err := f.store.PersistOrders(f.ctx(), 1, batch)
	switch {
	case err == nil:
		return 0
	case pipeline.KindOf(err) != pipeline.KindData:
		f.Fatal(err)
	case len(batch) == 1:
		return 1
	}
	return f.bisect(batch[:len(batch)/2]) + f.bisect(batch[len(batch)/2:])
}

// An order of more units than its sale allows was accepted by no script: it is no row, and none of its neighbours fails
// for it.
func TestMoreThanTheSaleAllows(t *testing.T) {
	f := setup(t)
	f.sale("drop", 100000)
	limit := one[int](f, `select max_quantity from sales where id = 'drop'`)
	batch := events("drop", 3)
	batch[0].Quantity, batch[1].Quantity = limit, limit+1
	got, err := f.store.PersistOrders(f.ctx(), 1, batch)
	want := []pipeline.PersistOutcome{pipeline.PersistInserted, pipeline.PersistOverLimit, pipeline.PersistInserted}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestBadValuesAreData(t *testing.T) {
	f := setup(t)
	f.sale("drop", 100000)
	before := f.state()
	for name, spoil := range map[string]func(*pipeline.Event){
		"order id":           func(e *pipeline.Event) { e.OrderID = "x" },
		"empty order id":     func(e *pipeline.Event) { e.OrderID = "" },
		"number 0":           func(e *pipeline.Event) { e.Number = 0 },
		"quantity 0":         func(e *pipeline.Event) { e.Quantity = 0 },
		"quantity negative":  func(e *pipeline.Event) { e.Quantity = -1 },
		"quantity 2^31":      func(e *pipeline.Event) { e.Quantity = 1 << 31 },
		"quantity 2^63-1":    func(e *pipeline.Event) { e.Quantity = 1<<63 - 1 },
		"partition 64":       func(e *pipeline.Event) { e.Partition = 64 },
		"partition 2^15":     func(e *pipeline.Event) { e.Partition = 1 << 15 },
		"partition negative": func(e *pipeline.Event) { e.Partition = -1 },
		"sequence 0":         func(e *pipeline.Event) { e.Sequence = 0 },
		"user empty":         func(e *pipeline.Event) { e.UserID = "" },
		"user too long":      func(e *pipeline.Event) { e.UserID = strings.Repeat("u", 129) },
		"user with NUL":      func(e *pipeline.Event) { e.UserID = "a\x00b" },
		"user not UTF-8":     func(e *pipeline.Event) { e.UserID = "a\xffb" },
		"sale with NUL":      func(e *pipeline.Event) { e.SaleID = "drop\x00" },
	} {
		batch := events("drop", 3)
		spoil(&batch[1])
		_, err := f.store.PersistOrders(f.ctx(), 1, batch)
		if got := pipeline.KindOf(err); got != pipeline.KindData {
			t.Errorf("%s: got %v, want a KindData error", name, err)
		}
		if after := f.state(); after != before {
			t.Fatalf("%s: something was written:\n%s", name, after)
		}
	}
	_, err := f.store.PersistOrders(f.ctx(), 1, make([]pipeline.Event, pipeline.MaxPersistBatch+1))
	wantKind(t, err, pipeline.KindInvalid)
}

func TestLargestBatch(t *testing.T) {
	f := setup(t)
	f.sale("drop", pipeline.MaxPersistBatch)
	f.persist(events("drop", pipeline.MaxPersistBatch)...)
	const n = pipeline.MaxPersistBatch
	if got, want := f.books("drop"), (books{n, n, n}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := f.watermark("drop", 3); got != n {
		t.Errorf("watermark: got %d, want %d", got, n)
	}
}

// The watermark is the highest sequence per sale and partition, and never goes back.
func TestWatermarks(t *testing.T) {
	f := setup(t)
	f.sale("drop", 100)
	at := func(p pipeline.Partition, sequence int64) pipeline.Event {
		e := event("drop", uuid.NewString(), 1, sequence)
		e.Partition = p
		return e
	}
	f.persist(at(0, 4), at(63, 900), at(0, 17), at(0, 3))
	f.persist(at(0, 2), at(63, 899))
	f.persist(at(0, 18))
	for p, want := range map[pipeline.Partition]int64{0: 18, 63: 900, 1: 0} {
		if got := f.watermark("drop", p); got != want {
			t.Errorf("%s: got %d, want %d", p, got, want)
		}
	}
}

// The same results through every protocol that a pooler may impose.
func TestPersistInEveryProtocol(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			f := open(t, withParam(testkit.Database(t), "default_query_exec_mode="+mode), patient)
			f.sale("drop", 10)
			batch := events("drop", 4)
			wantOutcomes(t, f.persist(batch[:3]...), inserted, inserted, inserted)
			wantOutcomes(t, f.persist(batch[2:]...), redelivered, inserted)
			if _, err := f.store.ChangeSale(f.ctx(), "drop", "me", pipeline.SaleChange{AddStock: 1}); err != nil {
				t.Error(err)
			}
			lately := pipeline.SalesFilter{UpdatedSince: time.Now().Add(-time.Hour)}
			if sales, err := f.store.Sales(f.ctx(), lately); err != nil || len(sales) != 1 {
				t.Errorf("sales: got %v, %v", sales, err)
			}
			if order, err := f.store.LatestOrder(f.ctx(), "drop", batch[0].UserID); err != nil || order.ID != batch[0].OrderID {
				t.Errorf("latest order: got %+v, %v", order, err)
			}
			addKnown, known := collect()
			ledger, err := f.store.Ledger(f.ctx(), "drop", slices.Values([]string{batch[0].OrderID}), addKnown, nil, nil)
			if err != nil || ledger.LiveUnits != 4 || len(known) != 1 {
				t.Errorf("ledger: got %+v, %v", ledger, err)
			}
			letter := deadletter.Message{EntryID: "1-1", Reason: "undecodable", Payload: map[string]any{"a": "b"}}
			if err := f.store.BuryEvent(f.ctx(), letter, nil); err != nil {
				t.Errorf("dead letter: %v", err)
			}
		})
	}
}
