package recovery_test

import (
	"context"
	"testing"

	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/recovery"
)

// forgetful is a Postgres that goes away just when a rebuild is to be recorded.
type forgetful struct {
	recovery.VerifyStore
	times int
}

func (f *forgetful) RecordRebuild(
	ctx context.Context, g pipeline.Generation, actor string, report pipeline.RebuildReport,
) error {
	if f.times--; f.times >= 0 {
		return pipeline.Errorf(pipeline.KindUnavailable, "Postgres is away")
	}
	return f.VerifyStore.RecordRebuild(ctx, g, actor, report)
}

// No rebuild is silent: one that can't be recorded is not done, and is done again when it can.
func TestARebuildIsOnRecord(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL()})
	r.AdmitMany("persisted", 5)
	r.WorkAll()
	r.Flush()
	store := &forgetful{VerifyStore: r.Store, times: 2}
	if err := recovery.EnsureVerified(r.Ctx(), r.Redis, r.Keys, store, r.Options.Partitions, r.Logger); err != nil {
		t.Fatal(err)
	}
	if got := r.Rebuilds(); len(got) != 1 || got[0].Live != 5 {
		t.Errorf("got rebuilds %+v on record, want the one that was done", got)
	}
	r.Balanced(r.Sale, 5)
}

// overtaken is a Postgres in which another verification begins just when a rebuild is to be recorded: the connection
// that elected this one was cut.
type overtaken struct {
	recovery.VerifyStore
	times int
}

func (o *overtaken) RecordRebuild(
	ctx context.Context, g pipeline.Generation, actor string, report pipeline.RebuildReport,
) error {
	if o.times--; o.times >= 0 {
		if _, err := o.NextGeneration(ctx, nil); err != nil {
			return err
		}
	}
	return o.VerifyStore.RecordRebuild(ctx, g, actor, report)
}

// A verification that was overtaken while it compared writes nothing into Postgres: the accepts that are lost are
// counted once.
func TestAnOvertakenRebuildIsNotOnRecord(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL()})
	r.AdmitMany("persisted", 5)
	r.WorkAll()
	// Three more were accepted, and are nowhere.
	if _, err := r.SQL.Exec(r.Ctx(), `update watermarks set seq = seq + 3`); err != nil {
		t.Fatal(err)
	}
	r.Flush()
	store := &overtaken{VerifyStore: r.Store, times: 2}
	if err := recovery.EnsureVerified(r.Ctx(), r.Redis, r.Keys, store, r.Options.Partitions, r.Logger); err != nil {
		t.Fatal(err)
	}
	if got := r.Rebuilds(); len(got) != 1 || got[0].Missing != 3 {
		t.Errorf("got rebuilds %+v on record, want one that misses three", got)
	}
	if store.times != -1 {
		t.Errorf("got %d, want both overtaken rebuilds refused, and a third one recorded", store.times)
	}
	var lost int
	if err := r.SQL.QueryRow(r.Ctx(), `select sum(lost) from watermarks`).Scan(&lost); err != nil || lost != 3 {
		t.Errorf("got %d lost, %v, want 3", lost, err)
	}
}

// beaten is a Postgres beside which another process takes the partition just when a rebuild was recorded.
type beaten struct {
	recovery.VerifyStore
	rig   *pipelinetest.Rig
	times int
}

func (b *beaten) RecordRebuild(
	ctx context.Context, g pipeline.Generation, actor string, report pipeline.RebuildReport,
) error {
	err := b.VerifyStore.RecordRebuild(ctx, g, actor, report)
	if b.times--; err == nil && b.times >= 0 {
		id, err := b.Installation(ctx)
		if err != nil {
			return err
		}
		_, err = lua.BeginVerify(ctx, b.rig.Redis, b.rig.Keys.ForVerify(report.Partition, id), "another")
		return err
	}
	return err
}

// A rebuild that fails again and again is one line of the audit log.
func TestARebuildThatFailsIsOneLine(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL()})
	r.AdmitMany("persisted", 5)
	r.WorkAll()
	r.Flush()
	store := &beaten{VerifyStore: r.Store, rig: r, times: 5}
	if err := recovery.EnsureVerified(r.Ctx(), r.Redis, r.Keys, store, r.Options.Partitions, r.Logger); err != nil {
		t.Fatal(err)
	}
	if got := r.Rebuilds(); store.times > 0 || len(got) != 1 || got[0].Live != 5 {
		t.Errorf("got rebuilds %+v on record, and %d failures to come, want one line", got, store.times)
	}
	r.Balanced(r.Sale, 5)
	r.Flush() // another loss is another line
	r.Ensure()
	if got := r.Rebuilds(); len(got) != 2 {
		t.Errorf("got rebuilds %+v on record, want two", got)
	}
}

// A worker dies between giving a release back and marking it, and marks it when it is repeated. Later Redis loses one
// release. The counters don't show it, and no unit leaks all the same.
func TestALostReleaseThatTheCountersHide(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 20, MaxQuantity: 1}})
	r.AdmitMany("buyer", 6)
	r.Persist(r.Events(r.Sale)...)
	expire(r, "buyer-0")
	p := r.Sale.Partitions[0]
	first, err := r.Store.UnappliedReleases(r.Ctx(), pipeline.SalePartition{}, 10)
	if err != nil || len(first) != 1 {
		t.Fatalf("got releases %v, %v, want one", first, err)
	}
	r.Release(first[0].UserID, first[0].OrderID) // and it dies
	if err := r.Releaser().Apply(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	older := snapshot(r)
	expire(r, "buyer-1")
	if err := r.Releaser().Apply(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	restore(r, older)
	if err := r.Redis.Del(r.Ctx(), r.Keys.Trusted(p)).Err(); err != nil {
		t.Fatal(err)
	}
	r.Ensure()
	r.Balanced(r.Sale, 4)
	r.Admit("buyer-1", 1)
}
