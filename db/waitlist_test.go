package db_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/pipeline"
)

func waitlistEntry(user string, ticket int64) pipeline.WaitlistEntry {
	return pipeline.WaitlistEntry{
		SaleID: "drop-1", OrderID: uuid.Must(uuid.NewV7()).String(), UserID: user, Number: 1<<41 + lastNumber.Add(1),
		Quantity:  2,
		Partition: 3, Ticket: ticket, KeyHash: "k", PayloadHash: "p", JoinedAt: time.UnixMilli(1793534400000 + ticket).UTC(),
	}
}

func (f *fixture) joined(e pipeline.WaitlistEntry) pipeline.WaitlistEntry {
	f.Helper()
	if err := f.store.RecordJoin(f.ctx(), 1, e); err != nil {
		f.Fatalf("record the join of %s: %v", e.UserID, err)
	}
	return e
}

func (f *fixture) left(e pipeline.WaitlistEntry, ticket int64) bool {
	f.Helper()
	recorded, err := f.store.RecordLeave(f.ctx(), 1, e, ticket)
	if err != nil {
		f.Fatalf("record the leave of %s: %v", e.UserID, err)
	}
	return recorded
}

// waitlist are the entries of those who wait, in the order of tickets.
func (f *fixture) waitlist() []pipeline.WaitlistEntry {
	f.Helper()
	var all []pipeline.WaitlistEntry
	add := func(e pipeline.WaitlistEntry) error { all = append(all, e); return nil }
	if err := f.store.EachWaitlistEntry(f.ctx(), "drop-1", 3, add); err != nil {
		f.Fatal(err)
	}
	return all
}

// waitlistSale is a sale with a waitlist that was loaded into Redis and is not over.
func (f *fixture) waitlistSale() {
	f.Helper()
	sale := newSale("drop-1", 10)
	sale.Waitlist, sale.OpensAt, sale.ClosesAt = 7, time.Now(), time.Now().Add(time.Hour)
	f.create(sale)
	if err := f.store.MarkLoaded(f.ctx(), sale.ID); err != nil {
		f.Fatal(err)
	}
	if got, err := f.store.Sale(f.ctx(), sale.ID); err != nil || got.Waitlist != 7 {
		f.Fatalf("sale: %+v, %v", got, err)
	}
}

func (f *fixture) tickets() int64 {
	f.Helper()
	marks, err := f.store.Watermarks(f.ctx())
	if err != nil || len(marks) != 1 {
		f.Fatalf("marks: %+v, %v", marks, err)
	}
	return marks[0].Tickets
}

func TestJoinsAreRecordedOnce(t *testing.T) {
	f := setup(t)
	f.waitlistSale()
	if got := f.tickets(); got != 0 {
		t.Errorf("tickets before: %d", got)
	}
	ann, bob := waitlistEntry("ann", 4), waitlistEntry("bob", 2)
	for range 2 {
		f.joined(ann)
		f.joined(bob)
	}
	if got := f.waitlist(); !slices.Equal(got, []pipeline.WaitlistEntry{bob, ann}) {
		t.Errorf("waitlist: got %+v", got)
	}
	if got := f.tickets(); got != 4 {
		t.Errorf("tickets: got %d, want 4", got)
	}
	if got, err := f.store.LatestWaitlistEntry(f.ctx(), "drop-1", "ann"); err != nil || got != ann {
		t.Errorf("ann's entry: %+v, %v", got, err)
	}
	_, err := f.store.LatestWaitlistEntry(f.ctx(), "drop-1", "cy")
	wantKind(t, err, pipeline.KindNotFound)
	double := waitlistEntry("cy", 4)
	wantKind(t, f.store.RecordJoin(f.ctx(), 1, double), pipeline.KindData)

	for range 2 {
		if !f.left(ann, 5) {
			t.Error("ann's leave was not recorded")
		}
	}
	f.joined(ann) // a late answer of the api that let her join
	if got := f.waitlist(); !slices.Equal(got, []pipeline.WaitlistEntry{bob}) {
		t.Errorf("waitlist after ann left: got %+v", got)
	}
	if got := f.tickets(); got != 5 {
		t.Errorf("tickets: got %d, want that of the leave, 5", got)
	}
	again := f.joined(waitlistEntry("ann", 6))
	if got := f.waitlist(); !slices.Equal(got, []pipeline.WaitlistEntry{bob, again}) {
		t.Errorf("waitlist: got %+v", got)
	}
}

// A leave that is recorded before its join, which comes later and changes nothing.
func TestALeaveMayOvertakeItsJoin(t *testing.T) {
	f := setup(t)
	f.waitlistSale()
	ann := waitlistEntry("ann", 1)
	if !f.left(ann, 2) {
		t.Error("the leave was not recorded")
	}
	f.joined(ann)
	if got := f.waitlist(); len(got) != 0 {
		t.Errorf("waitlist: got %+v", got)
	}
	if got, err := f.store.LatestWaitlistEntry(f.ctx(), "drop-1", "ann"); err != nil || got.LeftAt.IsZero() {
		t.Errorf("ann's entry: %+v, %v", got, err)
	}
}

// A buyer who got an order, of this entry or another, waits no longer; only the latest entry counts.
func TestABuyerWithAnOrderDoesNotWait(t *testing.T) {
	f := setup(t)
	f.waitlistSale()
	served, other, twice := waitlistEntry("served", 1), waitlistEntry("other", 2), waitlistEntry("twice", 3)
	f.joined(served)
	f.joined(other)
	f.joined(twice)
	latest := f.joined(waitlistEntry("twice", 4))
	e := event("drop-1", "served", 1, 1)
	e.OrderID = served.OrderID
	f.persist(e, event("drop-1", "other", 1, 2))
	if got := f.waitlist(); !slices.Equal(got, []pipeline.WaitlistEntry{latest}) {
		t.Errorf("waitlist: got %+v", got)
	}
	if f.left(served, 5) {
		t.Error("a leave was recorded of an entry that became an order")
	}
	f.cancel(e)
	if got := f.waitlist(); !slices.Equal(got, []pipeline.WaitlistEntry{latest}) {
		t.Errorf("waitlist after the order has ended: got %+v", got)
	}
	wrong := errors.New("enough")
	if err := f.store.EachWaitlistEntry(f.ctx(), "drop-1", 3,
		func(pipeline.WaitlistEntry) error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("an error of the callback: got %v", err)
	}
}

// What was decided by a Redis that is being verified anew is not recorded.
func TestJoinsOfAnOldGenerationAreNotRecorded(t *testing.T) {
	f := setup(t)
	f.waitlistSale()
	ann := f.joined(waitlistEntry("ann", 1))
	if _, err := f.store.NextGeneration(f.ctx(), nil); err != nil {
		t.Fatal(err)
	}
	before := one[string](f, `select string_agg(w::text, '') from waitlist w`)
	if err := f.store.RecordJoin(f.ctx(), 1, waitlistEntry("bob", 2)); !errors.Is(err, pipeline.ErrStaleGeneration) {
		t.Errorf("join: got %v", err)
	}
	if _, err := f.store.RecordLeave(f.ctx(), 1, ann, 3); !errors.Is(err, pipeline.ErrStaleGeneration) {
		t.Errorf("leave: got %v", err)
	}
	if after := one[string](f, `select string_agg(w::text, '') from waitlist w`); after != before {
		t.Errorf("got %s, want %s", after, before)
	}
}

func TestWaitlistLimitIsThePipelines(t *testing.T) {
	f := setup(t)
	for limit, want := range map[int64]bool{
		0: true, pipeline.MaxWaitlist: true, pipeline.MaxWaitlist + 1: false,
		-1: false,
	} {
		sale := newSale(fmt.Sprint("drop", limit+2), 1)
		sale.Waitlist = limit
		if err := f.store.CreateSale(f.ctx(), sale); (err == nil) != want {
			t.Errorf("waitlist %d: got %v", limit, err)
		}
		f.exec(`delete from sales`)
		_, err := f.raw.Exec(f.ctx(), `
			insert into sales (id, title, total, max_quantity, opens_at, closes_at, payment_window, state, partitions, waitlist)
			values ('x', 'x', 1, 1, now(), now() + interval '1 h', '0', 'active', '{0}', $1)`, limit)
		if (err == nil) != want {
			t.Errorf("Postgres, waitlist %d: got %v", limit, err)
		}
	}
}
