package pipelinetest

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/worker"
)

// SettleLimit is how long any test waits for workers to get done; it is many times what they need.
const SettleLimit = time.Minute

// RunningWorker is a worker in this process that can be stopped.
type RunningWorker struct {
	*worker.Worker
	Stop func() // asks it to stop, and waits
}

// StartWorker runs a worker until the test ends or it is stopped. Its store may be
// another than the rig's; in place of the rig's it gets one that may do no more than a worker's.
func (r *Rig) StartWorker(store worker.Store, opts worker.Options, jobs ...pipeline.Job) *RunningWorker {
	r.Helper()
	opts.Partitions = r.Options.Partitions
	if store == worker.Store(r.Store) {
		store = r.WorkerStore()
	}
	worker, err := worker.New(worker.Config{
		Redis: r.Redis, Reader: r.dial(), Keys: r.Keys, Store: store, Options: opts, Jobs: jobs, Log: r.Logger,
		Metrics: r.Metrics.Worker, DeadLetters: r.Metrics.DeadLetter, Resubmits: r.Metrics.Resubmit,
	})
	if err != nil {
		r.Fatalf("new worker: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		worker.Run(ctx)
	}()
	running := &RunningWorker{Worker: worker, Stop: func() {
		cancel()
		select {
		case <-done:
		case <-time.After(SettleLimit):
			r.Errorf("worker %s did not stop", worker.Name())
		}
	}}
	r.Cleanup(running.Stop)
	return running
}

// CreateGroups does what the first worker of an installation does.
func (r *Rig) CreateGroups() {
	r.Helper()
	for p := range pipeline.Partition(r.Options.Partitions) {
		err := r.Redis.XGroupCreateMkStream(r.Ctx(), r.Keys.Orders(p), pipeline.Group, "0").Err()
		if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") { // publishing a sale made that one
			r.Fatal(err)
		}
	}
}

// Settled waits until the streams of all partitions are empty.
func (r *Rig) Settled() {
	r.Helper()
	testkit.Eventually(r.T, SettleLimit, "every event is settled", func() bool { return r.StreamLength() == 0 })
}

// StreamLength sums the streams of all partitions; -1 when Redis does not answer.
func (r *Rig) StreamLength() int64 {
	var sum int64
	for p := range pipeline.Partition(r.Options.Partitions) {
		n, err := r.Redis.XLen(r.Ctx(), r.Keys.Orders(p)).Result()
		if err != nil {
			return -1
		}
		sum += n
	}
	return sum
}

// PendingOf counts what is pending for a consumer, over all partitions.
func (r *Rig) PendingOf(consumer string) int64 {
	var sum int64
	for p := range pipeline.Partition(r.Options.Partitions) {
		summary, err := r.Redis.XPending(r.Ctx(), r.Keys.Orders(p), pipeline.Group).Result()
		if err == nil {
			sum += summary.Consumers[consumer]
		}
	}
	return sum
}

// Balanced audits a sale and expects an exact, clean report with so many live units.
func (r *Rig) Balanced(sale *pipeline.Sale, live int64) {
	r.Helper()
	report, err := r.Auditor.Audit(r.Ctx(), sale)
	if err != nil {
		r.Fatalf("audit: %v", err)
	}
	if !report.Exact || !report.Clean() || report.Live != live {
		r.Errorf(
			"audit: got %d live units, exact %t, findings %q; want %d, true, none", report.Live, report.Exact, report.Findings,
			live,
		)
	}
}
