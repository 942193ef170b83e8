package db_test

import (
	"slices"
	"testing"
	"time"

	"sluice/pipeline"
)

const week = 7 * 24 * time.Hour

// ended moves a sale's window back, so that its last order could be paid so long ago.
func (f *fixture) ended(id string, ago time.Duration) {
	f.Helper()
	closed := one[time.Time](f, `select now() - payment_window - $2::interval from sales where id = $1`, id, ago)
	f.exec(`update sales set closes_at = $2, opens_at = $3 where id = $1`, id, closed, closed.Add(-time.Hour))
}

func (f *fixture) retire() []string {
	f.Helper()
	ids, err := f.store.RetireSales(f.ctx(), week, 100)
	if err != nil {
		f.Fatal(err)
	}
	slices.Sort(ids)
	return ids
}

func (f *fixture) mustHave(id string) bool {
	f.Helper()
	watermarks, err := f.store.Watermarks(f.ctx())
	if err != nil {
		f.Fatal(err)
	}
	return slices.ContainsFunc(watermarks, func(m pipeline.Watermark) bool { return m.SaleID == id })
}

// A sale is retired once it has been over for as long as is set, awaits no payment and owes Redis nothing.
func TestSalesAreRetiredOnceTheyOweNothing(t *testing.T) {
	f := setup(t)
	for id, ago := range map[string]time.Duration{
		"young": week - time.Minute, "old": week, "unpaid": week, "owing": week,
	} {
		f.loaded(id, 10)
		f.ended(id, ago)
	}
	unpaid, owing := event("unpaid", "ann", 1, 1), event("owing", "ann", 1, 1)
	f.persist(unpaid, owing)
	f.cancel(owing)
	if got := f.retire(); !slices.Equal(got, []string{"old"}) {
		t.Errorf("got %q, want the one that is old and owes nothing", got)
	}
	if got := f.retire(); len(got) != 0 {
		t.Errorf("again: got %q", got)
	}
	f.cancel(unpaid)
	f.exec(`update releases set applied_at = now()`)
	if got := f.retire(); !slices.Equal(got, []string{"owing", "unpaid"}) {
		t.Errorf("once they owe nothing: got %q", got)
	}
	if got := one[string](f, `select string_agg(sale_id || ' ' || actor, ',' order by sale_id) from audit_log
		where action = 'retire'`); got != "old sluice,owing sluice,unpaid sluice" {
		t.Errorf("audit log: got %q", got)
	}
}

// What buyers have in one sale of a group counts in the others: they leave Redis when all of them are over.
func TestAGroupIsRetiredTogether(t *testing.T) {
	f := setup(t)
	for _, id := range []string{"red", "blue"} {
		sale := newSale(id, 10)
		sale.LimitGroup, sale.GroupLimit = "lamps", 2
		f.create(sale)
		f.ended(id, week)
	}
	f.ended("blue", 23*time.Hour)
	if got := f.retire(); len(got) != 0 {
		t.Errorf("got %q, while one of the group is not over", got)
	}
	f.ended("blue", 25*time.Hour)
	if got := f.retire(); !slices.Equal(got, []string{"red"}) {
		t.Errorf("got %q, want the one that is old", got)
	}
}

// What is released late needs no Redis, and Redis must not have the sale for it.
func TestLateReleasesOfARetiredSale(t *testing.T) {
	f := setup(t)
	f.loaded("drop", 10)
	f.loaded("other", 10)
	f.ended("other", 0)
	f.ended("drop", week)
	f.retire()
	late, other := event("drop", "ann", 2, 1), event("other", "ann", 2, 1)
	f.persist(late, other) // a worker was away for a week
	f.cancel(late)
	f.cancel(other)
	if f.mustHave("drop") {
		t.Error("Redis must have a retired sale")
	}
	for range 2 {
		if err := f.store.SettleRetiredReleases(f.ctx()); err != nil {
			t.Fatal(err)
		}
	}
	due, err := f.store.UnappliedReleases(f.ctx(), pipeline.SalePartition{}, 10)
	if err != nil || len(due) != 1 || due[0].SaleID != "other" {
		t.Errorf("got %+v, %v, want the other sale's release only", due, err)
	}
	if got := one[bool](f, `select given_back from releases where sale_id = 'drop'`); got {
		t.Error("something was given back")
	}
}

// Redis is cleared of a retired sale once in each generation. A window that is moved brings the sale back.
func TestARetiredSaleComesBackWithItsWindow(t *testing.T) {
	f := setup(t)
	f.loaded("drop", 10)
	f.ended("drop", week)
	f.retire()
	clears := func(g pipeline.Generation, want int) {
		t.Helper()
		sales, err := f.store.SalesToClear(f.ctx(), g, 10)
		if err != nil || len(sales) != want {
			t.Fatalf("generation %d: got %d sales to clear, %v, want %d", g, len(sales), err, want)
		}
		for _, sale := range sales {
			if err := f.store.MarkCleared(f.ctx(), sale.ID, g); err != nil {
				t.Fatal(err)
			}
		}
	}
	clears(1, 1)
	clears(1, 0)
	clears(2, 1)
	f.change("drop", pipeline.SaleChange{Note: to("of last week")})
	if sale := f.stored("drop"); sale.RetiredAt.IsZero() || f.mustHave("drop") {
		t.Errorf("a note: got %+v, want it retired still", sale)
	}
	f.change("drop", window(-1, 1))
	if sale := f.stored("drop"); !sale.RetiredAt.IsZero() || !f.mustHave("drop") {
		t.Errorf("a new window: got %+v, want it back", sale)
	}
	clears(9, 0)
	if err := f.store.MarkCleared(f.ctx(), "drop", 9); err != nil { // a late worker
		t.Fatal(err)
	}
	f.ended("drop", week)
	f.retire()
	clears(9, 1)
}
