package db_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
)

// Events of a generation that is over change nothing, not even in part; those of the present one are persisted.
func TestAStaleGenerationPersistsNothing(t *testing.T) {
	f := setup(t)
	f.sale("drop", 10)
	batch := events("drop", 3)
	first, err := f.store.Generation(f.ctx())
	if err != nil {
		t.Fatal(err)
	}
	next, err := f.store.NextGeneration(f.ctx(), nil)
	if err != nil || next != first+1 {
		t.Fatalf("next generation: got %d, %v, want %d", next, err, first+1)
	}
	before := f.state()
	for _, stale := range []pipeline.Generation{0, first, next + 1} {
		if _, err := f.store.PersistOrders(f.ctx(), stale, batch); !errors.Is(err, pipeline.ErrStaleGeneration) {
			t.Errorf("generation %d: got %v, want it stale", stale, err)
		}
	}
	if f.state() != before {
		t.Error("a stale generation wrote something")
	}
	outcomes, err := f.store.PersistOrders(f.ctx(), next, batch)
	if err != nil || outcomes[0] != pipeline.PersistInserted {
		t.Errorf("the present generation: got %v, %v", outcomes, err)
	}
}

// A generation begins only when the statements of the one before are done, so that what they wrote is seen by whatever
// reads after it; and a statement that waits for it finds itself stale, though it began before.
func TestAGenerationWaitsForItsStatements(t *testing.T) {
	f := setup(t)
	f.sale("drop", 10)
	first, err := f.store.Generation(f.ctx())
	if err != nil {
		t.Fatal(err)
	}
	tx, err := f.raw.Begin(f.ctx())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(f.ctx(), `select join_generation()`); err != nil { // as a persisting statement does
		t.Fatal(err)
	}
	var begun atomic.Bool
	done := make(chan error, 1)
	go func() {
		_, err := f.store.NextGeneration(f.ctx(), nil)
		begun.Store(true)
		done <- err
	}()
	f.lockWaiters(t, 1)
	if begun.Load() {
		t.Fatal("the next generation did not wait")
	}
	stale := make(chan error, 1)
	go func() {
		_, err := f.store.PersistOrders(f.ctx(), first, events("drop", 1))
		stale <- err
	}()
	f.lockWaiters(t, 2)
	if err := tx.Commit(f.ctx()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := <-stale; !errors.Is(err, pipeline.ErrStaleGeneration) {
		t.Errorf("a statement that began before: got %v, want it stale", err)
	}
}

// A verification that was overtaken puts nothing on record: the accepts that it found lost are counted by the other.
func TestAStaleRebuildIsNotRecorded(t *testing.T) {
	f := setup(t)
	f.sale("drop", 10)
	old := must(f.store.NextGeneration(f.ctx(), nil))(t)
	now := must(f.store.NextGeneration(f.ctx(), nil))(t)
	report := pipeline.RebuildReport{SaleID: "drop", Partition: 3, Cause: "restart", Missing: 4}
	recorded := func() int64 {
		return one[int64](f,
			`select (select count(*) from audit_log where action = 'rebuild') + coalesce((select sum(lost) from watermarks), 0)::bigint`)
	}
	for _, g := range []pipeline.Generation{old, now + 1} {
		if err := f.store.RecordRebuild(f.ctx(), g, "ann", report); !errors.Is(err, pipeline.ErrStaleGeneration) ||
			recorded() != 0 {
			t.Errorf("generation %d at %d: got %v, %d on record, want it stale and nothing", g, now, err, recorded())
		}
	}
	if err := f.store.RecordRebuild(f.ctx(), now, "ann", report); err != nil || recorded() != 1+4 {
		t.Errorf("the present one: got %v, %d on record", err, recorded())
	}
}

func must(g pipeline.Generation, err error) func(*testing.T) pipeline.Generation {
	return func(t *testing.T) pipeline.Generation {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
}

// lockWaiters returns once at least n connections of this database wait for a lock.
func (f *fixture) lockWaiters(t *testing.T, n int64) {
	t.Helper()
	testkit.Eventually(t, time.Minute, "connections that wait for a lock", func() bool {
		return one[int64](f, `
			select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`) >= n
	})
}

func TestOneRunsAtATime(t *testing.T) {
	f := setup(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() {
		ran, err := f.store.RunExclusively(f.ctx(), "a", func(context.Context) error {
			close(entered)
			<-leave
			return nil
		})
		if !ran && err == nil {
			err = errors.New("it did not run")
		}
		first <- err
	}()
	<-entered
	never := func(context.Context) error { t.Error("two at once"); return nil }
	if ran, err := f.store.RunExclusively(f.ctx(), "a", never); ran || err != nil {
		t.Errorf("a second one: got %t, %v", ran, err)
	}
	if ran, err := f.store.RunExclusively(f.ctx(), "b", func(context.Context) error { return nil }); !ran || err != nil {
		t.Errorf("another name: got %t, %v", ran, err)
	}
	close(leave)
	if err := <-first; err != nil {
		t.Error(err)
	}
	failure := errors.New("failed")
	if ran, err := f.store.RunExclusively(f.ctx(), "a", func(context.Context) error { return failure }); !ran ||
		!errors.Is(err, failure) {
		t.Errorf("after it: got %t, %v, want it to run, and its own error", ran, err)
	}
}
