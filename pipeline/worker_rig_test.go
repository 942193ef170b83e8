package pipeline_test

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/pipeline"
)

// settleLimit is how long any test waits for workers to get done; it is many times what they need.
const settleLimit = time.Minute

// runningWorker is a worker in this process that can be told to stop.
type runningWorker struct {
	*pipeline.Worker
	stop func() // tells it to stop, and waits
}

// startWorker runs a worker until the test ends or it is stopped. Its store may be another than the rig's.
func (r *rig) startWorker(store pipeline.OrderStore, opts pipeline.WorkerOptions, jobs ...pipeline.Job) *runningWorker {
	r.Helper()
	opts.Partitions = r.opts.Partitions
	worker, err := pipeline.NewWorker(pipeline.WorkerConfig{
		Redis: r.rdb, Reader: r.dial(), Keys: r.keys, Store: store, Options: opts, Jobs: jobs, Log: r.log,
		Metrics: r.metrics.Worker, DeadLetters: r.metrics.DeadLetter, Resubmits: r.metrics.Resubmit,
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
	running := &runningWorker{Worker: worker, stop: func() {
		cancel()
		select {
		case <-done:
		case <-time.After(settleLimit):
			r.Errorf("worker %s did not stop", worker.Name())
		}
	}}
	r.Cleanup(running.stop)
	return running
}

// createGroups does what the first worker of an installation does.
func (r *rig) createGroups() {
	r.Helper()
	for p := range pipeline.Partition(r.opts.Partitions) {
		err := r.rdb.XGroupCreateMkStream(r.ctx(), r.keys.Orders(p), pipeline.Group, "0").Err()
		if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") { // publishing a sale made that one
			r.Fatal(err)
		}
	}
}

// eventually waits until the streams of all partitions are empty.
func (r *rig) settled() {
	r.Helper()
	testkit.Eventually(r.T, settleLimit, "every event is settled", func() bool { return r.streamLength() == 0 })
}

// streamLength sums the streams of all partitions; -1 when Redis does not answer.
func (r *rig) streamLength() int64 {
	var sum int64
	for p := range pipeline.Partition(r.opts.Partitions) {
		n, err := r.rdb.XLen(r.ctx(), r.keys.Orders(p)).Result()
		if err != nil {
			return -1
		}
		sum += n
	}
	return sum
}

// pendingOf counts what is pending for a consumer, over all partitions.
func (r *rig) pendingOf(consumer string) int64 {
	var sum int64
	for p := range pipeline.Partition(r.opts.Partitions) {
		summary, err := r.rdb.XPending(r.ctx(), r.keys.Orders(p), pipeline.Group).Result()
		if err == nil {
			sum += summary.Consumers[consumer]
		}
	}
	return sum
}

// balanced audits a sale and expects an exact, clean report with so many live units.
func (r *rig) balanced(sale *pipeline.Sale, live int64) {
	r.Helper()
	report, err := r.auditor.Audit(r.ctx(), sale)
	if err != nil {
		r.Fatalf("audit: %v", err)
	}
	if !report.Exact || !report.Clean() || report.Live != live {
		r.Errorf("audit: got %d live units, exact %t, findings %q; want %d, true, none", report.Live, report.Exact, report.Findings, live)
	}
}
