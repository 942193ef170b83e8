package db_test

import (
	"testing"

	"sluice/pipeline"
)

func (f *fixture) beginReduction(id string, to int64) *pipeline.Sale {
	f.Helper()
	sale, err := f.store.BeginReduction(f.ctx(), id, "Zoë", to)
	if err != nil {
		f.Fatalf("begin: %v", err)
	}
	return sale
}

func (f *fixture) endReduction(asked *pipeline.Sale, g pipeline.Generation, done bool) *pipeline.Sale {
	f.Helper()
	sale, err := f.store.EndReduction(f.ctx(), asked, g, done)
	if err != nil {
		f.Fatalf("end: %v", err)
	}
	return sale
}

// loaded is a sale that Redis was given.
func (f *fixture) loaded(id string, total int64) *pipeline.Sale {
	f.Helper()
	f.sale(id, total)
	if err := f.store.MarkLoaded(f.ctx(), id); err != nil {
		f.Fatal(err)
	}
	return f.stored(id)
}

// A reduction is noted, and ended once, by whom Redis answered first; nothing else changes the sale meanwhile.
func TestAReductionEndsOnce(t *testing.T) {
	f := setup(t)
	f.endpoint()
	f.loaded("drop", 100)
	f.exec(`delete from outbox`)
	asked := f.beginReduction("drop", 60)
	if again := f.beginReduction("drop", 60); asked.ReduceTo != 60 || again.ReduceTo != 60 || again.Version != 1 {
		t.Fatalf("begun: %+v, again: %+v", asked, again)
	}
	_, err := f.store.BeginReduction(f.ctx(), "drop", "me", 70)
	wantKind(t, err, pipeline.KindConflict)
	_, err = f.store.ChangeSale(f.ctx(), "drop", "me", pipeline.SaleChange{AddStock: 1})
	wantKind(t, err, pipeline.KindConflict)

	if sale := f.endReduction(asked, 0, true); sale.ReduceTo != 60 || sale.Total != 100 {
		t.Errorf("in another generation: got %+v, want it open still", sale)
	}
	for _, done := range []bool{true, false, true} { // the first answer counts
		if sale := f.endReduction(asked, 1, done); sale.Total != 60 || sale.Version != 2 || sale.ReduceTo != 0 {
			t.Errorf("got %+v, want 60 units", sale)
		}
	}
	if sale := f.beginReduction("drop", 60); sale.ReduceTo != 0 {
		t.Errorf("the same again: got %+v, want nothing begun", sale)
	}
	if got := one[string](f, `select string_agg(actor || ' ' || (detail #>> '{before,total}') || '>'
		|| (detail #>> '{after,total}'), ' ') from audit_log where action = 'reduce'`); got != "Zoë 100>60" {
		t.Errorf("audit log: got %q", got)
	}
	if got := one[string](f, `select string_agg(type || ' ' || (data ->> 'removed'), ' ') from outbox`); got !=
		"sale.reduced 40" {
		t.Errorf("events: got %q", got)
	}
}

// Where Redis refuses, the sale stays as it was, under a version that is newer than what Redis may have.
func TestAReductionThatRedisRefuses(t *testing.T) {
	f := setup(t)
	f.loaded("drop", 100)
	sale := f.endReduction(f.beginReduction("drop", 60), 1, false)
	if sale.Total != 100 || sale.Version != 3 || sale.ReduceTo != 0 {
		t.Errorf("got %+v, want the sale as it was", sale)
	}
	if got := one[int](f, `select count(*) from audit_log where action = 'reduce'`); got != 0 {
		t.Errorf("got %d lines of what was not done", got)
	}
}

func TestReductionsThatAreRefused(t *testing.T) {
	f := setup(t)
	f.loaded("drop", 100)
	f.sale("unloaded", 100)
	f.loaded("closed", 100)
	f.change("closed", state(pipeline.SaleClosed))
	before := f.state()
	for name, try := range map[string]struct {
		id   string
		to   int64
		want pipeline.Kind
	}{
		"no units":   {"drop", 0, pipeline.KindInvalid},
		"more":       {"drop", 101, pipeline.KindInvalid},
		"not loaded": {"unloaded", 50, pipeline.KindNotLoaded},
		"closed":     {"closed", 50, pipeline.KindConflict},
		"unknown":    {"none", 50, pipeline.KindNotFound},
	} {
		if _, err := f.store.BeginReduction(f.ctx(), try.id, "me", try.to); pipeline.KindOf(err) != try.want {
			t.Errorf("%s: got %v, want kind %s", name, err, try.want)
		}
	}
	if after := f.state(); after != before {
		t.Error("something was written")
	}
}
