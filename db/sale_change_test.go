package db_test

import (
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"sluice/pipeline"
)

func TestChangeSale(t *testing.T) {
	f := setup(t)
	sale := f.sale("drop", 100)
	opens, closes := sale.OpensAt.Add(time.Hour), sale.ClosesAt.Add(time.Hour+time.Nanosecond)
	paused, active, closed := pipeline.SalePaused, pipeline.SaleActive, pipeline.SaleClosed
	for _, step := range []struct {
		action string
		change pipeline.SaleChange
		apply  func(*pipeline.Sale)
	}{
		{"restock", pipeline.SaleChange{AddStock: 50}, func(s *pipeline.Sale) { s.Total = 150 }},
		{"reschedule", pipeline.SaleChange{OpensAt: &opens, ClosesAt: &closes}, func(s *pipeline.Sale) {
			s.OpensAt, s.ClosesAt = opens, closes.Truncate(time.Microsecond)
		}},
		{"pause", pipeline.SaleChange{State: &paused}, func(s *pipeline.Sale) { s.State = paused }},
		{"resume", pipeline.SaleChange{State: &active}, func(s *pipeline.Sale) { s.State = active }},
		{
			"change",
			pipeline.SaleChange{State: &paused, AddStock: 1},
			func(s *pipeline.Sale) { s.State, s.Total = paused, 151 },
		},
		{"close", pipeline.SaleChange{State: &closed}, func(s *pipeline.Sale) { s.State = closed }},
	} {
		want := *sale
		step.apply(&want)
		want.Version++
		got, err := f.store.ChangeSale(f.ctx(), "drop", "Zoë", step.change)
		if err != nil {
			t.Fatalf("%s: %v", step.action, err)
		}
		if !got.UpdatedAt.After(sale.UpdatedAt) {
			t.Errorf("%s: updated at %s, not after %s", step.action, got.UpdatedAt, sale.UpdatedAt)
		}
		want.UpdatedAt = got.UpdatedAt
		if !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: got %+v, want %+v", step.action, *got, want)
		}
		logged := one[string](f, `
			select actor || ' ' || action || ' ' || sale_id || ' '
			|| (detail #>> '{before,version}') || '>' || (detail #>> '{after,version}') || ' '
			|| (detail #>> '{before,total}') || '>' || (detail #>> '{after,total}') || ' ' || (detail #>> '{after,state}')
			from audit_log order by id desc limit 1`)
		wantLogged := fmt.Sprintf("Zoë %s drop %d>%d %d>%d %s",
			step.action, sale.Version, got.Version, sale.Total, got.Total, got.State)
		if logged != wantLogged {
			t.Errorf("audit log: got %q, want %q", logged, wantLogged)
		}
		sale = got
	}
	if got := one[int64](f, `select count(*) from audit_log where action <> 'create'`); got != 6 {
		t.Errorf("audit log: got %d lines, want 6", got)
	}
}

func TestChangeSaleRefuses(t *testing.T) {
	f := setup(t)
	sale := f.sale("drop", 100)
	over, unknown, closed := f.sale("over", 1), pipeline.SaleState("open"), pipeline.SaleClosed
	if _, err := f.store.ChangeSale(f.ctx(), over.ID, "me", pipeline.SaleChange{State: &closed}); err != nil {
		t.Fatal(err)
	}
	before := f.state()
	for name, try := range map[string]struct {
		id, actor string
		change    pipeline.SaleChange
		want      pipeline.Kind
	}{
		"less stock":      {"drop", "me", pipeline.SaleChange{AddStock: -1}, pipeline.KindInvalid},
		"too much stock":  {"drop", "me", pipeline.SaleChange{AddStock: pipeline.MaxStock}, pipeline.KindInvalid},
		"stock overflow":  {"drop", "me", pipeline.SaleChange{AddStock: 1<<63 - 1}, pipeline.KindInvalid},
		"window":          {"drop", "me", pipeline.SaleChange{ClosesAt: &sale.OpensAt}, pipeline.KindInvalid},
		"state":           {"drop", "me", pipeline.SaleChange{State: &unknown}, pipeline.KindInvalid},
		"closed is final": {"over", "me", pipeline.SaleChange{AddStock: 1}, pipeline.KindConflict},
		"closed already":  {"over", "me", pipeline.SaleChange{State: &closed}, pipeline.KindConflict},
		"no actor":        {"drop", "", pipeline.SaleChange{AddStock: 1}, pipeline.KindData},
	} {
		_, err := f.store.ChangeSale(f.ctx(), try.id, try.actor, try.change)
		if got := pipeline.KindOf(err); got != try.want {
			t.Errorf("%s: got %v, want kind %s", name, err, try.want)
		}
	}
	got, err := f.store.ChangeSale(f.ctx(), "drop", "me", pipeline.SaleChange{OpensAt: &sale.OpensAt, State: &sale.State})
	if err != nil || !reflect.DeepEqual(got, sale) {
		t.Errorf("a change that changes nothing: got %+v, %v, want %+v", got, err, sale)
	}
	if after := f.state(); after != before {
		t.Errorf("something was written:\n%s\nbefore:\n%s", after, before)
	}
}

// Operators who change a sale at once don't lose each other's change: every one counts, or is refused as a conflict.
func TestChangeSaleAtOnce(t *testing.T) {
	f := setup(t)
	f.sale("drop", 100)
	var mu sync.Mutex
	var added int64
	var operators sync.WaitGroup
	for range 4 {
		operators.Go(func() {
			for range 10 {
				switch _, err := f.store.ChangeSale(f.ctx(), "drop", "me", pipeline.SaleChange{AddStock: 1}); pipeline.KindOf(err) {
				case "":
					mu.Lock()
					added++
					mu.Unlock()
				case pipeline.KindConflict:
				default:
					t.Error(err)
				}
			}
		})
	}
	operators.Wait()
	sale, err := f.store.Sale(f.ctx(), "drop")
	if err != nil {
		t.Fatal(err)
	}
	if sale.Total != 100+added || sale.Version != 1+added ||
		one[int64](f, `select count(*) from audit_log where action = 'restock'`) != added {
		t.Errorf("after %d restocks by 1: total %d, version %d", added, sale.Total, sale.Version)
	}
	if added < 10 {
		t.Errorf("only %d of 40 changes came through", added)
	}
}
