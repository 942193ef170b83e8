package installation

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/retry"
)

const (
	// refreshEvery is the time between two readings of Postgres, and so about the longest that an old primary is
	// believed after another server was verified in its place.
	refreshEvery = 250 * time.Millisecond
	// refreshLimit bounds one reading.
	refreshLimit = 2 * time.Second
)

// FenceStore is what a Fence needs of Postgres.
type FenceStore interface {
	Verifications(ctx context.Context) (Verifications, error)
}

// Verifications are what Postgres says of those of Redis, and of its own examination.
type Verifications struct {
	Present pipeline.Generation
	// Begun is, for each partition, the generation in which its latest verification began. Partitions that were never
	// verified are left out.
	Begun map[pipeline.Partition]pipeline.Generation
	// Examined says that this server process was compared with Redis since it started; Replaced, that another one was
	// before, which is not the same where none ever was.
	Examined, Replaced bool
}

// Fence knows in which generation each partition was verified last, as far as Postgres said. A server that was verified
// in an earlier one has been replaced by another, although it may trust itself: it could not be reached, or not by all.
// What it still accepts, another one sells as well. A nil Fence fences nothing.
type Fence struct {
	store  FenceStore
	maxAge time.Duration

	reading     sync.Mutex // lets one Refresh run at a time
	generations [pipeline.MaxPartitions]atomic.Int64
	readAt      atomic.Pointer[time.Time] // when the latest reading began; nil before the first
	unexamined  atomic.Bool               // according to the latest reading
	replaced    atomic.Bool               // likewise
}

// NewFence returns a Fence that knows nothing yet. Current fails once what it knows is older than maxAge; zero: never.
func NewFence(store FenceStore, maxAge time.Duration) *Fence {
	return &Fence{store: store, maxAge: maxAge}
}

// Run keeps what the Fence knows fresh until the context ends. No error ends it: Postgres being away is nothing that an
// order waits for.
func (f *Fence) Run(ctx context.Context) {
	for ctx.Err() == nil {
		_, _ = f.Refresh(ctx) // Current tells when it has failed for long
		retry.Sleep(ctx, refreshEvery)
	}
}

// Refresh reads Postgres, and returns the present generation. Every verification up to that one is known afterwards. A
// Postgres that was restored to an earlier state is believed: its count goes on from there.
func (f *Fence) Refresh(ctx context.Context) (pipeline.Generation, error) {
	f.reading.Lock() // an older reading must not replace a newer one
	defer f.reading.Unlock()
	ctx, cancel := context.WithTimeout(ctx, refreshLimit)
	defer cancel()
	began := time.Now()
	read, err := f.store.Verifications(ctx)
	if err != nil {
		return 0, err
	}
	for p := range f.generations {
		f.generations[p].Store(int64(read.Begun[pipeline.Partition(p)]))
	}
	f.unexamined.Store(!read.Examined)
	f.replaced.Store(read.Replaced)
	f.readAt.Store(&began)
	return read.Present, nil
}

// Unexamined reports whether Postgres was, at the latest reading, a server process that was not compared with Redis.
// Not before the first reading.
func (f *Fence) Unexamined() bool { return f != nil && f.unexamined.Load() }

// Examined returns ErrUnexamined while Postgres is, as of the latest reading, another server process than the one that
// was compared with Redis last: what it does not know may be what it has forgotten.
func (f *Fence) Examined() error {
	if f != nil && f.replaced.Load() {
		return ErrUnexamined
	}
	return nil
}

// Generation is the one in which a partition was verified last, as far as is known. Zero: nothing is known.
func (f *Fence) Generation(p pipeline.Partition) pipeline.Generation {
	if f == nil {
		return 0
	}
	return pipeline.Generation(f.generations[p].Load())
}

// Current is Generation for those who give receipts: it fails with KindNotLoaded when Postgres has not been reached for
// too long to know whether the server was replaced. Both clocks are asked: the monotonic one stands still while the
// machine sleeps.
func (f *Fence) Current(p pipeline.Partition) (pipeline.Generation, error) {
	if f == nil {
		return 0, nil
	}
	if f.maxAge > 0 {
		readAt := f.readAt.Load()
		if readAt == nil {
			return 0, errUnfenced
		}
		now := time.Now()
		if max(now.Sub(*readAt), now.Round(0).Sub(readAt.Round(0))) > f.maxAge {
			return 0, errUnfenced
		}
	}
	return f.Generation(p), nil
}

// errUnfenced says that nobody knows whether the server was replaced.
var errUnfenced = pipeline.Errorf(pipeline.KindNotLoaded,
	"Postgres has not answered for longer than FENCE_MAX_AGE, so this process can't know whether Redis was replaced")

// ErrSuperseded says that another server was verified in the place of the one that was asked.
var ErrSuperseded = pipeline.Errorf(pipeline.KindUnavailable,
	"another Redis server was verified since; this one still trusts itself, and nothing is taken from it: "+
		"remove it, or, if it is the right one after all, run `sluice rebuild --apply` against it")

// ErrUnexamined says that nothing was persisted, because Postgres is another server process than the one that was
// compared with Redis last.
var ErrUnexamined = pipeline.Errorf(pipeline.KindUnavailable,
	"Postgres restarted or was replaced, and was not compared with Redis yet; orders wait in the stream until it is")
