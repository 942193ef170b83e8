package recovery

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/installation"
	"sluice/pipeline/journal"
	"sluice/pipeline/moves"
	"sluice/pipeline/retry"
)

const (
	// lookEvery is the time between two looks, and so the longest that a restart, a failover or a flush goes unnoticed.
	// Nobody is admitted meanwhile, because the scripts notice at once. A look takes a microsecond of Redis per partition.
	lookEvery = 250 * time.Millisecond
	// reopenGrace is how long a partition that has lost something is open for lost accepts only: several looks of every
	// process that may have some in flight.
	reopenGrace = 6 * lookEvery
	// sightLimit is how old a look may be for the server to count as reached: some may be late.
	sightLimit = 4 * lookEvery
	// verifyLimit bounds one verification. A million live orders take some ten seconds.
	verifyLimit = 10 * time.Minute
	// verifyName is the name of the lock in Postgres by which verifications exclude each other.
	verifyName = "verify"
)

// VerifyStore is what a verification needs of Postgres.
type VerifyStore interface {
	audit.LedgerSource
	// Installation is the id of the installation whose database this is.
	Installation(ctx context.Context) (string, error)
	Sale(ctx context.Context, id string) (*pipeline.Sale, error)
	Watermarks(ctx context.Context) ([]pipeline.Watermark, error)
	// LatestReleases are those of a sale on a partition that were applied last, up to a limit.
	LatestReleases(ctx context.Context, at pipeline.SalePartition, limit int) ([]pipeline.Release, error)
	// NextGeneration begins a generation, in which some partitions are verified.
	NextGeneration(ctx context.Context, partitions []pipeline.Partition) (pipeline.Generation, error)
	installation.FenceStore
	// KnownOrders returns those of a sale's orders that have a row, in any status.
	KnownOrders(ctx context.Context, saleID string, orderIDs []string) (map[string]bool, error)
	// SettleMoves decides what becomes of the moves of units that concern a partition which is about to be rebuilt, and
	// returns what it has to know of moves. It refuses an earlier generation with ErrStaleGeneration.
	SettleMoves(ctx context.Context, g pipeline.Generation, at pipeline.SalePartition) (moves.Standing, error)
	// UncoveredJournals are the accept journals of which something may not have been submitted again since a generation
	// began.
	UncoveredJournals(
		ctx context.Context, g pipeline.Generation, partitions []pipeline.Partition,
	) ([]journal.Unanswered, error)
	RunExclusively(ctx context.Context, name string, do func(context.Context) error) (ran bool, err error)
	// RecordRebuild refuses what a verification of an earlier generation found, with ErrStaleGeneration.
	RecordRebuild(ctx context.Context, g pipeline.Generation, actor string, r pipeline.RebuildReport) error
	// FinishRebuild says that the rebuild that was recorded last is done.
	FinishRebuild(ctx context.Context, r pipeline.RebuildReport) error
	// EachWaitlistEntry calls each for every entry of a waitlist on a partition, in the order of tickets.
	EachWaitlistEntry(ctx context.Context, saleID string, p pipeline.Partition,
		each func(pipeline.WaitlistEntry) error) error
	// EachEndedOrder calls each for every order on a partition that has ended and had an Idempotency-Key, buyer by buyer,
	// the latest first.
	EachEndedOrder(ctx context.Context, saleID string, p pipeline.Partition,
		each func(pipeline.LedgerOrder) error) error
}

// KeptAccepts are the accepts that a process keeps.
type KeptAccepts interface {
	// Resubmit submits those of some partitions to Redis again, once all that are being answered are among them, unless
	// the Fence says that another server has taken its place. It returns the partitions of which all were submitted.
	Resubmit(ctx context.Context, partitions []pipeline.Partition) ([]pipeline.Partition, error)
	// Cover says in Postgres that this was done for some partitions since a generation began.
	Cover(ctx context.Context, g pipeline.Generation, partitions []pipeline.Partition) error
	// Uncovered returns those of some partitions for which Postgres does not have that.
	Uncovered(ctx context.Context, g pipeline.Generation, partitions []pipeline.Partition) ([]pipeline.Partition, error)
	// TookOver reports whether accepts of another process came to be kept here since the last call.
	TookOver() bool
}

// Verifier makes sure that nothing is sold from Redis unless its state is known to be good. Every script that admits,
// releases or loads compares the key `trusted` with the run_id and the replication id of the server that runs it. So a
// server that restarted, failed over, followed another one for a while, was restored or flushed admits nobody until a
// verifier has compared each sale with Postgres and rebuilt what is behind. Every api and worker runs one; Postgres
// lets one of them work at a time.
type Verifier struct {
	VerifierConfig

	seen []seenPartition // in the previous look, per partition
	id   string          // of the installation; empty until it is read

	saw      atomic.Pointer[time.Time] // when the last look began at a server that may be used; nil before the first
	running  bool                      // by Run: the process lives for long enough to examine Postgres
	covering atomic.Bool               // accepts are being submitted, which can take long and ends at the first error
}

// VerifierConfig is what a Verifier works with.
type VerifierConfig struct {
	Redis      redis.UniversalClient
	Keys       pipeline.Keys
	Store      VerifyStore
	Partitions int      // of the installation
	Metrics    *Metrics // nil: nothing is exported
	Log        *slog.Logger

	// Fence knows which verification was the last. Whoever gives it keeps it fresh; nil: the Verifier reads Postgres when
	// it verifies.
	Fence *installation.Fence
	// Accepts are those that this process has given receipts for. They are submitted again after each verification that
	// may have followed a loss. Nil where a process gives no receipts.
	Accepts KeptAccepts
	// Ledger lets Run find out that Postgres has forgotten what Redis knows, and store it again: within a second of its
	// answering again, where the Fence is kept fresh. Nil: Run does not look.
	Ledger LedgerStore
	Burier *deadletter.Burier // of orders that can't be stored again; needed with Ledger
	// Found is called with the result of each look: an error for which IsForeign is true while Redis belongs to another
	// installation. Only Run and Ensure call it. Nil: nothing is called.
	Found func(error)
}

// NewVerifier returns a Verifier that has not looked yet.
func NewVerifier(c VerifierConfig) *Verifier {
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	if c.Fence == nil {
		c.Fence = installation.NewFence(c.Store, 0)
	}
	v := &Verifier{VerifierConfig: c, seen: make([]seenPartition, c.Partitions)}
	for p := range v.seen {
		v.seen[p].due = c.Accepts != nil // those of processes before this one
	}
	return v
}

// Run keeps the partitions verified until the context ends. No error ends it. Only one Run, Ensure or Rebuild at a time
// may use a Verifier.
func (v *Verifier) Run(ctx context.Context) {
	failing := false
	v.running = true
	for ctx.Err() == nil {
		_, err := v.tick(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			v.logObstacle(err)
		}
		failing = err != nil
		retry.Sleep(ctx, lookEvery)
	}
}

// SeesRedis reports whether the servers were reached a moment ago, and were not replaced by others: whether this
// process can submit its accepts again. One that was away for long does not count. It may be called while Run runs.
func (v *Verifier) SeesRedis() bool {
	if v.covering.Load() {
		return true
	}
	saw := v.saw.Load()
	return saw != nil && time.Since(*saw) < sightLimit
}

// logObstacle logs why nobody can order. A Redis of another installation does not go away by itself: an operator has to
// act.
func (v *Verifier) logObstacle(err error) {
	if errors.Is(err, installation.ErrSuperseded) {
		v.Log.Error("Redis was replaced; nothing is taken from this server and nobody can order from it", "error", err)
		return
	}
	if installation.IsForeign(err) {
		v.Log.Error("Redis belongs to another installation; nothing is taken from it and nobody can order", "error", err)
		return
	}
	v.Log.Warn("Redis is not verified; nobody can order until it is", "error", err)
}

// Ensure returns once every partition is trusted, and verifies those that are not. It fails when the context ends, with
// the last obstacle, or when Redis belongs to another installation.
func (v *Verifier) Ensure(ctx context.Context) error {
	for {
		trusted, err := v.tick(ctx)
		if trusted {
			return nil
		}
		if installation.IsForeign(err) { // only an operator can change that
			return err
		}
		retry.Sleep(ctx, lookEvery)
		if ctx.Err() != nil {
			return errors.Join(pipeline.Errorf(pipeline.KindUnavailable, "Redis was not verified in time"), err)
		}
	}
}

// tick looks once, submits recent accepts again where something may be lost, and verifies what is not trusted unless
// another process does. It reports whether every partition is trusted. Those whose server is away hold no others up.
func (v *Verifier) tick(ctx context.Context) (trusted bool, err error) {
	began := time.Now()
	s, err := v.look(ctx)
	if err == nil && slices.Contains(s.states, superseded) {
		err = installation.ErrSuperseded
	} else if err == nil {
		err = s.away()
	}
	if v.Found != nil {
		v.Found(err)
	}
	if s == nil {
		return false, err
	}
	untrusted := v.noteAll(s, began)
	if errors.Is(err, installation.ErrSuperseded) {
		return false, err // what was accepted here is submitted to the other server, as soon as it is reached
	}
	if v.seesEnough(began) {
		v.saw.Store(&began)
	}
	if v.examines() && v.Fence.Unexamined() {
		// First: a verification believes what Postgres says.
		if _, err := v.Store.RunExclusively(ctx, verifyName, v.examine); err != nil {
			return false, err
		}
	}
	err = errors.Join(err, v.resubmitDue(ctx, s.states))
	if !untrusted {
		return s.away() == nil, err
	}
	_, verifyErr := v.Store.RunExclusively(ctx, verifyName, v.verifyUntrusted)
	return false, errors.Join(err, verifyErr)
}

// noteAll records what a look saw, and reports whether a partition that was reached is not trusted.
func (v *Verifier) noteAll(s *sight, began time.Time) (untrusted bool) {
	for p, state := range s.states {
		if state == unreached {
			v.Metrics.trusted.WithLabelValues(pipeline.Partition(p).String()).Set(0)
			continue
		}
		v.note(pipeline.Partition(p), state, s.runIDs[p], began)
		untrusted = untrusted || state != lua.Trusted
	}
	return untrusted
}

// examines reports whether this Verifier compares Postgres with Redis.
func (v *Verifier) examines() bool { return v.running && v.Ledger != nil }

// verifyUntrusted verifies every partition that is not trusted. A verification before this one may have died at any
// step.
func (v *Verifier) verifyUntrusted(ctx context.Context) error {
	// First: a server that another one has replaced must not be opened by a process that has not heard of that.
	if _, err := v.Fence.Refresh(ctx); err != nil {
		return err
	}
	if err := v.Fence.Examined(); err != nil && v.examines() { // a Postgres that has forgotten something is no measure
		return err
	}
	s, err := v.look(ctx)
	if err != nil {
		return err
	}
	var untrusted, reopening []pipeline.Partition
	for p, state := range s.states {
		switch state {
		case lua.Trusted, superseded, unreached:
		case lua.Reopening: // its verifier has died
			reopening = append(reopening, pipeline.Partition(p))
		default:
			untrusted = append(untrusted, pipeline.Partition(p))
		}
	}
	r := v.newRound("restart")
	return errors.Join(r.verify(ctx, untrusted), r.takeOver(ctx, reopening))
}

// ensureTimeout bounds EnsureVerified: enough for any state that is not lost, and for the journals of processes that
// live and do not answer.
const ensureTimeout = coverLimit + 30*time.Second

// EnsureVerified returns when every partition is trusted: at once in a running installation, after a verification of
// each in a new one. It is for programs that define sales and may be the first to use this Redis. It gives up after
// five minutes and a half.
func EnsureVerified(
	ctx context.Context, rdb redis.UniversalClient, keys pipeline.Keys, store VerifyStore,
	partitions int, log *slog.Logger,
) error {
	ctx, cancel := context.WithTimeout(ctx, ensureTimeout)
	defer cancel()
	v := NewVerifier(VerifierConfig{Redis: rdb, Keys: keys, Store: store, Partitions: partitions, Log: log})
	return v.Ensure(ctx)
}
