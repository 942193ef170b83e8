package worker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lock"
	"sluice/pipeline"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/installation"
	"sluice/pipeline/notification"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/resubmit"
	"sluice/pipeline/retry"
)

// MaxBatchSize bounds WORKER_BATCH_SIZE: beyond it a batch gains no speed and only risks its deadline.
const MaxBatchSize = 1000

// MaxConcurrency bounds WORKER_CONCURRENCY: each lane takes the memory of a batch and one connection to each store.
const MaxConcurrency = 64

// Options are the settings of a worker. Zero values get the defaults.
type Options struct {
	Name       string // unique consumer name; made from host and process when empty
	Partitions int    // of the installation
	BatchSize  int    // orders per transaction; default 500
	// batches at once; default 2, so that one waits for Redis while the other waits for Postgres
	Concurrency   int
	BatchDeadline time.Duration // for one attempt to lock and persist a batch; default 5 s
	LockTTL       time.Duration // default 10 s: longer than any attempt, so a lock never expires under a working holder
	ClaimMinIdle  time.Duration // default 15 s: longer than a lock, so what is claimed can be locked
	MaxDeliveries int           // from here on an event is processed alone; default 10
}

// The times of a worker that no setting changes.
const (
	heartbeatInterval = time.Second
	// after five missed beats a worker is dead; its events are persisted within 20 s
	heartbeatTTL    = 5 * time.Second
	reclaimInterval = 2 * time.Second        // between looks for what others, or lost replies, left behind
	strandedMinIdle = 2 * time.Second        // an own entry that is not in flight for this long was lost with a reply
	fetchBlock      = 500 * time.Millisecond // a blocked read can't be cancelled, so this also bounds shutdown

	reapInterval = 10 * time.Second

	// livingRounds is how many looks go by until what is pending for workers that live is looked at entry by entry, which
	// is only of use where Redis' clock has jumped: otherwise XAUTOCLAIM finds it.
	livingRounds = 4
	noKey        = -2 // what PTTL returns where there is no key
)

// WithDefaults fills in what is not set.
func (o Options) WithDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	if o.Name == "" {
		o.Name = consumerName()
	}
	if o.BatchSize == 0 {
		o.BatchSize = 500
	}
	if o.Concurrency == 0 {
		o.Concurrency = 2
	}
	if o.MaxDeliveries == 0 {
		o.MaxDeliveries = 10
	}
	def(&o.BatchDeadline, 5*time.Second)
	def(&o.LockTTL, 10*time.Second)
	def(&o.ClaimMinIdle, 15*time.Second)
	return o
}

// Validate returns every broken rule at once. The order batch deadline < lock TTL < claim idle keeps a slow worker from
// being overtaken in the middle of a transaction.
func (o Options) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, pipeline.Errorf(pipeline.KindInvalid, format, args...))
		}
	}
	check(o.Partitions >= 1 && o.Partitions <= pipeline.MaxPartitions,
		"PARTITIONS is %d: use 1 to %d", o.Partitions, pipeline.MaxPartitions)
	check(o.BatchSize >= 1 && o.BatchSize <= MaxBatchSize,
		"WORKER_BATCH_SIZE is %d: use 1 to %d", o.BatchSize, MaxBatchSize)
	check(o.Concurrency >= 1 && o.Concurrency <= MaxConcurrency,
		"WORKER_CONCURRENCY is %d: use 1 to %d", o.Concurrency, MaxConcurrency)
	check(o.MaxDeliveries >= 1, "MAX_DELIVERIES is %d: use 1 or more", o.MaxDeliveries)
	check(o.BatchDeadline >= 100*time.Millisecond, "BATCH_DEADLINE is %s: use 100ms or more", o.BatchDeadline)
	check(o.BatchDeadline < o.LockTTL,
		"BATCH_DEADLINE (%s) must be shorter than LOCK_TTL (%s), or a batch outlives its locks", o.BatchDeadline, o.LockTTL)
	check(o.LockTTL < o.ClaimMinIdle,
		"LOCK_TTL (%s) must be shorter than CLAIM_MIN_IDLE (%s), or what is claimed is still locked",
		o.LockTTL, o.ClaimMinIdle)
	return errors.Join(errs...)
}

// consumerName is unique per process: two processes with one name would share a pending list, and each would mistake
// the other's entries for its own.
func consumerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	host, _, _ = strings.Cut(host, ".")
	if len(host) > 40 {
		host = host[:40]
	}
	var salt [4]byte
	_, _ = rand.Read(salt[:]) // documented never to fail
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(salt[:]))
}

// Store is what a worker needs of Postgres.
type Store interface {
	resubmit.Store
	Installation(ctx context.Context) (string, error)
	installation.FenceStore
	// PersistMarked turns events into orders, and returns the marks with which they are settled.
	PersistMarked(
		ctx context.Context, generation pipeline.Generation, events []pipeline.Event,
	) ([]pipeline.PersistOutcome, map[pipeline.SalePartition]int64, error)
}

// Worker persists events of the streams in Postgres. Any number of workers may run, on any number of machines; Redis'
// consumer group distributes the events among them.
type Worker struct {
	opts        Options
	keys        pipeline.Keys
	rdb         redis.UniversalClient // commands
	reader      redis.UniversalClient // blocking reads only, so that they never delay a command
	store       Store
	locks       *lock.Client
	metrics     *Metrics
	log         *slog.Logger
	inFlight    *inFlightEntries
	seen        firstSeen // of the reclaim loop alone
	burier      *deadletter.Burier
	resubmitter *resubmit.Resubmitter
	fence       *installation.Fence
	notifier    *notification.Notifier
	batches     chan struct{} // one token per batch under way
	jobs        []pipeline.Job
	started     time.Time

	installation atomic.Pointer[string] // its id; nil before Postgres was asked
	foreign      atomic.Bool            // events of another installation were delivered

	present presence

	generation atomic.Int64 // the newest that this worker knows; 0 before it knows any
}

// Config is what a worker works with.
type Config struct {
	Redis redis.UniversalClient // for commands; MaxRetries -1
	// for blocking reads; MaxRetries -1: a repeated read strands the entries of the first one
	Reader  redis.UniversalClient
	Keys    pipeline.Keys
	Store   Store
	Options Options
	Jobs    []pipeline.Job // background jobs; one of all workers runs each per tick
	Log     *slog.Logger

	// Fence knows which verification was the last, and is kept fresh by its owner; nil: the worker reads Postgres when a
	// batch is stale.
	Fence *installation.Fence

	// Without metrics (nil) nothing is exported.
	Metrics     *Metrics
	DeadLetters *deadletter.Metrics
	Resubmits   *resubmit.Metrics
}

// New returns a worker that has not started. Errors: KindInvalid, with every option that breaks a rule.
func New(c Config) (*Worker, error) {
	opts := c.Options.WithDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	if c.Fence == nil {
		c.Fence = installation.NewFence(c.Store, 0)
	}
	log := c.Log.With("worker", opts.Name)
	burier := deadletter.NewBurier(c.Store, c.DeadLetters, log)
	w := &Worker{
		opts: opts, keys: c.Keys, rdb: c.Redis, reader: c.Reader, store: c.Store, metrics: c.Metrics, log: log,
		locks: lock.New(c.Redis, lock.WithTTL(opts.LockTTL)), inFlight: newInFlightEntries(), seen: firstSeen{},
		burier: burier, fence: c.Fence,
		resubmitter: resubmit.New(resubmit.Config{
			Redis: c.Redis, Keys: c.Keys, Store: c.Store, Burier: burier, Fence: c.Fence, Metrics: c.Resubmits, Log: log,
		}),
		notifier: notification.NewNotifier(c.Redis, c.Keys, log), batches: make(chan struct{}, opts.Concurrency),
		started: time.Now(),
	}
	w.jobs = append(slices.Clone(c.Jobs), pipeline.Job{Name: "reap", Every: reapInterval, Run: w.reapDead})
	return w, nil
}

// Name is the worker's consumer name.
func (w *Worker) Name() string { return w.opts.Name }

// Run works until the context ends. It then finishes the batches in flight, releases what it could not finish and
// leaves the group; that takes at most BatchDeadline and some fifteen seconds more, if every store hangs. No error of
// Redis or Postgres ends it.
func (w *Worker) Run(ctx context.Context) {
	if !w.join(ctx) {
		return
	}
	w.present.set(true)
	var running sync.WaitGroup
	for _, streams := range w.readSets() {
		running.Go(func() { w.lane(ctx, streams) })
	}
	running.Go(func() { w.reclaimLoop(ctx) })
	for _, job := range w.jobs {
		running.Go(func() { w.jobLoop(ctx, job) })
	}
	// The heartbeat goes on until the last batch is done: a worker that is finishing its work must not look dead.
	beating, stopBeating := context.WithCancel(context.WithoutCancel(ctx))
	var heart sync.WaitGroup
	heart.Go(func() { w.heartbeatLoop(beating) })
	running.Wait()
	stopBeating()
	heart.Wait()
	w.present.set(false)
	w.leave()
}

// join creates the groups that are missing and sets the first heartbeat, and tries until it succeeds or the context
// ends. It reports whether the worker may start.
func (w *Worker) join(ctx context.Context) bool {
	backoff := retry.NewBackoff()
	for ctx.Err() == nil {
		err := w.ensureGroups(ctx)
		if err == nil {
			err = w.beat(ctx)
		}
		if err == nil {
			if g, err := w.fence.Refresh(ctx); err == nil { // else the first batch finds out
				w.learn(g)
			}
			w.log.Info("worker joined", "partitions", w.opts.Partitions, "batch_size", w.opts.BatchSize,
				"concurrency", w.opts.Concurrency)
			return true
		}
		w.stepFailed("join", err)
		backoff.Wait(ctx)
	}
	return false
}

// readSets returns the partitions that each lane reads together: all of them on one server, one each on a cluster,
// where a command can't span slots.
func (w *Worker) readSets() [][]pipeline.Partition {
	if _, cluster := w.reader.(*redis.ClusterClient); cluster {
		sets := make([][]pipeline.Partition, w.opts.Partitions)
		for p := range sets {
			sets[p] = []pipeline.Partition{pipeline.Partition(p)}
		}
		return sets
	}
	all := make([]pipeline.Partition, w.opts.Partitions)
	for p := range all {
		all[p] = pipeline.Partition(p)
	}
	sets := make([][]pipeline.Partition, w.opts.Concurrency)
	for i := range sets {
		sets[i] = all
	}
	return sets
}

// ensureGroups creates the groups that are missing, and adds the worker, which Redis 7.0 would not list before its
// first event.
func (w *Worker) ensureGroups(ctx context.Context) error {
	return redisstore.JoinGroups(ctx, w.rdb, w.keys, w.opts.Partitions, w.opts.Name)
}

// stepFailed counts and logs a step that failed and will be repeated.
func (w *Worker) stepFailed(step string, err error) {
	w.metrics.StepFailed(step)
	w.log.Warn("worker step failed, will be repeated", "step", step, "error", err)
}
