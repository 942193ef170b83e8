package worker_test

import (
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/worker"
)

// wrongBy is how far Redis' clock is set wrong: far more than any test waits.
const wrongBy = time.Hour

// TestADeadWorkerAfterAJumpOfTheClock: a worker has fetched events and died under a clock that was ahead, or is set
// back since. Neither its heartbeat nor the idle time of its events is believed for longer than they may last.
func TestADeadWorkerAfterAJumpOfTheClock(t *testing.T) {
	t.Parallel()
	for name, jump := range map[string]struct{ during, after time.Duration }{
		"ahead and back": {wrongBy, 0},
		"set back":       {0, -wrongBy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := testkit.RedisWithClock(t)
			r := pipelinetest.New(t, pipelinetest.Options{RedisURL: redis.URL(), Partitions: 1, Sale: pipeline.Sale{
				OpensAt: time.Now().Add(-2 * wrongBy), ClosesAt: time.Now().Add(2 * wrongBy),
			}})
			r.CreateGroups()
			receipts := r.AdmitMany("user", 5)
			setClock(t, redis, jump.during)
			deliverTo(r, "dead", 5)
			for q := range pipeline.Partition(r.Options.Partitions) {
				if err := r.Redis.Set(r.Ctx(), r.Keys.Worker(q, "dead"), "x", 5*time.Second).Err(); err != nil {
					t.Fatal(err)
				}
			}
			setClock(t, redis, jump.after)
			r.StartWorker(r.Store, worker.Options{})
			r.Settled()
			if got := r.Rows(r.Sale.ID); got != len(receipts) {
				t.Errorf("got %d orders, want %d", got, len(receipts))
			}
		})
	}
}

// TestALivingWorkerThatHangsAfterAJumpOfTheClock: its heartbeat goes on, and its events are taken over all the same.
func TestALivingWorkerThatHangsAfterAJumpOfTheClock(t *testing.T) {
	t.Parallel()
	redis := testkit.RedisWithClock(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: redis.URL(), Partitions: 1, Sale: pipeline.Sale{
		OpensAt: time.Now().Add(-2 * wrongBy), ClosesAt: time.Now().Add(2 * wrongBy),
	}})
	r.CreateGroups()
	r.AdmitMany("user", 5)
	setClock(t, redis, wrongBy)
	deliverTo(r, "hung", 5)
	setClock(t, redis, 0)
	if err := r.Redis.Set(r.Ctx(), r.Keys.Worker(r.Sale.Partitions[0], "hung"), "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	r.StartWorker(r.Store, worker.Options{
		BatchDeadline: 200 * time.Millisecond, LockTTL: 300 * time.Millisecond, ClaimMinIdle: 500 * time.Millisecond,
	})
	r.Settled()
}

func setClock(t *testing.T, server interface{ SetClock(time.Duration) error }, offset time.Duration) {
	t.Helper()
	if err := server.SetClock(offset); err != nil {
		t.Fatal(err)
	}
}
