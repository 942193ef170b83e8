package recovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/installation"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/retry"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"sluice/lua"
)

const (
	// lookEvery is how late a restart, a failover or a flush is noticed. Nobody is admitted meanwhile: the scripts see it at
	// once. A look is a microsecond of Redis for each partition.
	lookEvery = 250 * time.Millisecond
	// reopenGrace is how long a partition that has lost something is open for lost accepts only: several looks of everybody
	// who may have some in hand.
	reopenGrace = 6 * lookEvery
	// watchEvery is how often the counters of a trusted Redis are compared with Postgres.
	watchEvery = 2 * time.Second
	// verifyLimit bounds one verification. A million live orders take some ten seconds.
	verifyLimit = 10 * time.Minute
	// verifyName is what verifications exclude each other by.
	verifyName = "verify"
)

// VerifyStore is what a verification needs of Postgres.
type VerifyStore interface {
	audit.LedgerSource
	// Installation is the id of the installation whose database this is.
	Installation(ctx context.Context) (string, error)
	Sale(ctx context.Context, id string) (*pipeline.Sale, error)
	Watermarks(ctx context.Context) ([]pipeline.Watermark, error)
	NextGeneration(ctx context.Context) (pipeline.Generation, error)
	RunExclusively(ctx context.Context, name string, do func(context.Context) error) (ran bool, err error)
	// RecordRebuild refuses what a verification of an earlier generation found, with ErrStaleGeneration.
	RecordRebuild(ctx context.Context, g pipeline.Generation, actor string, r pipeline.RebuildReport) error
	// Waiting calls each for every person who waits on a partition, in the order of tickets.
	EachWaitlistEntry(ctx context.Context, saleID string, p pipeline.Partition, each func(pipeline.WaitlistEntry) error) error
}

// Verifier sees to it that Redis is only sold from while its state is known to be good. Every script that admits, releases
// or loads compares the key `trusted` with the run_id and the replication id of the server that runs it, so that one that
// restarted, failed over, followed another one for a while, was restored or flushed admits nobody until a verifier has compared
// each sale with Postgres, and rebuilt what is behind. Every api and worker runs one; Postgres
// lets one of them work at a time.
type Verifier struct {
	VerifierConfig

	seen   []seenPartition // by the look before, per partition
	id     string          // of the installation; empty before it was asked
	looked time.Time       // when that look began; zero before the first
}

// VerifierConfig is what a Verifier works with.
type VerifierConfig struct {
	Redis      redis.UniversalClient
	Keys       pipeline.Keys
	Store      VerifyStore
	Partitions int      // of the installation
	Metrics    *Metrics // nil: nothing is exported
	Log        *slog.Logger

	// Resubmit submits this process' recent accepts of a partition to Redis again. It is called after each verification that
	// may have followed a loss, once for each partition, and again after an error. Nil where a process gives no receipts.
	Resubmit func(ctx context.Context, p pipeline.Partition) error
	// Found is called with what each look found: an error of which IsForeign is true while Redis belongs to another installation.
	// It is called by Run and Ensure only. Nil: nothing is called.
	Found func(error)
}

type seenPartition struct {
	runID string
	due   bool // recent accepts must be submitted again once it is open
}

// NewVerifier returns a Verifier that has looked at nothing yet.
func NewVerifier(c VerifierConfig) *Verifier {
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	return &Verifier{VerifierConfig: c, seen: make([]seenPartition, c.Partitions)}
}

// Run looks after the partitions until the context ends. No error ends it. Only one Run, Ensure or Rebuild at a time may
// use a Verifier.
func (v *Verifier) Run(ctx context.Context) {
	failing := false
	for ctx.Err() == nil {
		_, err := v.tick(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			v.complain(err)
		}
		failing = err != nil
		retry.Sleep(ctx, lookEvery)
	}
}

// complain says why nobody can order. A Redis of somebody else is no passing trouble: somebody has to act.
func (v *Verifier) complain(err error) {
	if installation.IsForeign(err) {
		v.Log.Error("Redis belongs to another installation; nothing is taken from it and nobody can order", "error", err)
		return
	}
	v.Log.Warn("Redis is not verified; nobody can order until it is", "error", err)
}

// Ensure looks after the partitions until all of them are trusted. Its error is the last obstacle, when the context ends,
// or that Redis belongs to another installation.
func (v *Verifier) Ensure(ctx context.Context) error {
	for {
		trusted, err := v.tick(ctx)
		if trusted {
			return nil
		}
		if installation.IsForeign(err) { // it is for somebody to act, not to pass
			return err
		}
		retry.Sleep(ctx, lookEvery)
		if ctx.Err() != nil {
			return errors.Join(pipeline.Errorf(pipeline.KindUnavailable, "Redis was not verified in time"), err)
		}
	}
}

// tick looks once, submits recent accepts again where something may be lost, and verifies what is not trusted unless another
// process does. It reports whether every partition is trusted.
func (v *Verifier) tick(ctx context.Context) (trusted bool, err error) {
	began := time.Now()
	states, runIDs, err := v.look(ctx)
	if v.Found != nil {
		v.Found(err)
	}
	if err != nil {
		return false, err
	}
	missed := v.mayHaveMissed(time.Now())
	v.looked = began
	trusted = true
	for p, state := range states {
		v.note(pipeline.Partition(p), state, runIDs[p])
		v.seen[p].due = v.seen[p].due || missed
		trusted = trusted && state == lua.Trusted
	}
	err = v.resubmitDue(ctx, states)
	if trusted {
		return true, err
	}
	_, verifyErr := v.Store.RunExclusively(ctx, verifyName, v.verifyUntrusted)
	return false, errors.Join(err, verifyErr)
}

// installation asks Postgres for the id once: it never changes.
func (v *Verifier) installation(ctx context.Context) error {
	if v.id != "" {
		return nil
	}
	id, err := v.Store.Installation(ctx)
	if err == nil {
		v.id = id
	}
	return err
}

// look reads how far every partition is trusted, and which server process holds it. A partition that belongs to another
// installation is an error: nothing of it is ours to verify.
func (v *Verifier) look(ctx context.Context) (states []lua.Trust, runIDs []string, err error) {
	if err := v.installation(ctx); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(installation.WithLook(ctx), retry.CommandTimeout)
	defer cancel()
	states, runIDs = make([]lua.Trust, v.Partitions), make([]string, v.Partitions)
	for p := range states {
		if states[p], runIDs[p], err = lua.ReadTrust(ctx, v.Redis, v.Keys.ForVerify(pipeline.Partition(p), v.id)); err != nil {
			return nil, nil, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not tell whether it is verified")
		}
		if states[p] == lua.Foreign {
			return nil, nil, v.foreign(ctx, pipeline.Partition(p))
		}
	}
	return states, runIDs, nil
}

// foreign says to whom a partition belongs.
func (v *Verifier) foreign(ctx context.Context, p pipeline.Partition) error {
	err := installation.CheckOwners(ctx, v.Redis, v.Keys, []pipeline.Partition{p}, v.id, pipeline.KindUnavailable, true)
	if err == nil { // it has changed hands since
		err = errOvertaken(p)
	}
	return err
}

// mayHaveMissed reports whether a partition can have lost something and be open again since the look before: this process was
// stopped, or cut off from Redis. What was rebuilt is not open for as long as the grace, so that looks which are closer
// together see it. The run_id does not tell: a flush leaves it as it is. The wall clock counts the time in which the machine
// slept, the monotonic one can't be set.
func (v *Verifier) mayHaveMissed(now time.Time) bool {
	since := max(now.Sub(v.looked), now.Round(0).Sub(v.looked.Round(0)))
	return !v.looked.IsZero() && since >= reopenGrace
}

// note remembers where recent accepts will have to be submitted again.
func (v *Verifier) note(p pipeline.Partition, state lua.Trust, runID string) {
	gauge := v.Metrics.trusted.WithLabelValues(p.String())
	gauge.Set(1)
	seen := &v.seen[p]
	if state != lua.Trusted {
		gauge.Set(0)
		seen.due = true
	}
	if seen.runID != "" && seen.runID != runID {
		seen.due = true
	}
	seen.runID = runID
}

func (v *Verifier) resubmitDue(ctx context.Context, states []lua.Trust) error {
	var errs []error
	for p, state := range states {
		if !v.seen[p].due || state == lua.Untrusted {
			continue
		}
		err := v.resubmit(ctx, pipeline.Partition(p))
		errs = append(errs, err)
		// In the grace it is done again at each look: what was in flight elsewhere a moment ago may be here now.
		v.seen[p].due = err != nil || state == lua.Reopening
	}
	return errors.Join(errs...)
}

// resubmit submits this process' own recent accepts.
func (v *Verifier) resubmit(ctx context.Context, p pipeline.Partition) error {
	if v.Resubmit == nil {
		return nil
	}
	return v.Resubmit(ctx, p)
}

// verifyUntrusted verifies every partition that is not trusted. Somebody who did so before us may have got to any point.
func (v *Verifier) verifyUntrusted(ctx context.Context) error {
	states, _, err := v.look(ctx)
	if err != nil {
		return err
	}
	var untrusted, half []pipeline.Partition
	for p, state := range states {
		switch state {
		case lua.Trusted:
		case lua.Reopening: // its verifier has died
			half = append(half, pipeline.Partition(p))
		default:
			untrusted = append(untrusted, pipeline.Partition(p))
		}
	}
	r := v.newRound("restart")
	return errors.Join(r.verify(ctx, untrusted), r.open(ctx, half))
}

// round is one verification: of some partitions, under one token.
type round struct {
	*Verifier
	token string
	actor string
	cause string
	found *audit.Report // what a repair follows from; nil in every other verification

	generation pipeline.Generation // that it began, and by which Postgres knows it

	reports []pipeline.RebuildReport // of what was rebuilt
}

func (v *Verifier) newRound(cause string) *round {
	return &round{Verifier: v, token: uuid.NewString(), actor: "sluice", cause: cause}
}

// verify takes the partitions, ends the generation of what was fetched from them, and compares. Those that have lost
// nothing are open at once, the others after they are rebuilt.
func (r *round) verify(ctx context.Context, partitions []pipeline.Partition) error {
	if len(partitions) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, verifyLimit)
	defer cancel()
	began := time.Now()
	if err := r.begin(ctx, partitions); err != nil {
		return err
	}
	behind, err := r.behind(ctx, partitions)
	if err != nil {
		return err
	}
	var clean, lossy []pipeline.Partition
	for _, p := range partitions {
		if len(behind[p]) == 0 {
			clean = append(clean, p)
		} else {
			lossy = append(lossy, p)
		}
	}
	if err := r.finish(ctx, clean); err != nil {
		return err
	}
	if len(clean) > 0 {
		r.Log.Info("Redis is verified", "partitions", len(clean), "took", time.Since(began))
	}
	for _, p := range lossy {
		if err := r.rebuildPartition(ctx, p, behind[p]); err != nil {
			return err
		}
	}
	return r.open(ctx, lossy)
}

// begin closes the partitions and ends the generation: batches that were fetched before are not persisted any more, and
// those that were are in Postgres before anything is read from it.
func (r *round) begin(ctx context.Context, partitions []pipeline.Partition) (err error) {
	if err := r.installation(ctx); err != nil { // an operator's rebuild has not looked before
		return err
	}
	if err := r.each(ctx, partitions, lua.BeginVerify, lua.Verifying); err != nil {
		return err
	}
	r.generation, err = r.Store.NextGeneration(ctx)
	return err
}

// open lets lost accepts come back first, then everybody.
func (r *round) open(ctx context.Context, partitions []pipeline.Partition) error {
	if len(partitions) == 0 {
		return nil
	}
	for _, p := range partitions {
		if err := r.resubmit(ctx, p); err != nil { // it is done again once all is open
			r.Log.Warn("lost orders could not be shown to Redis yet", "partition", p, "error", err)
		}
	}
	retry.Sleep(ctx, reopenGrace)
	return r.finish(ctx, partitions)
}

func (r *round) finish(ctx context.Context, partitions []pipeline.Partition) error {
	return r.each(ctx, partitions, lua.FinishVerify, lua.Trusted)
}

// each takes one step of the verification on some partitions.
func (r *round) each(ctx context.Context, partitions []pipeline.Partition,
	step func(context.Context, redis.Scripter, lua.VerifyKeys, string) (lua.Trust, error), want lua.Trust,
) error {
	for _, p := range partitions {
		call, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
		got, err := step(call, r.Redis, r.Keys.ForVerify(p, r.id), r.token)
		cancel()
		if err != nil {
			return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not take a step of its verification")
		}
		if got == lua.Foreign {
			return r.foreign(ctx, p)
		}
		if got != want {
			return errOvertaken(p)
		}
	}
	return nil
}

func errOvertaken(p pipeline.Partition) error {
	return pipeline.Errorf(pipeline.KindUnavailable, "partition %s was taken by another verification, or by another server process", p)
}

// behind compares what Redis holds with what Postgres knows that it must hold. Postgres is read first: Redis only counts
// up, so that it can't look behind because of what happens between the two.
func (r *round) behind(ctx context.Context, partitions []pipeline.Partition) (map[pipeline.Partition][]lag, error) {
	marks, err := r.Store.Watermarks(ctx)
	if err != nil {
		return nil, err
	}
	wanted := make(map[pipeline.Partition]bool, len(partitions))
	for _, p := range partitions {
		wanted[p] = true
	}
	found := map[pipeline.Partition][]lag{}
	for _, m := range marks {
		if !wanted[m.Partition] {
			continue
		}
		holds, err := r.holds(ctx, m)
		if err != nil {
			return nil, err
		}
		if why := holds.behind(m); why != "" {
			found[m.Partition] = append(found[m.Partition], lag{mark: m, holds: holds, why: why})
		}
	}
	return found, nil
}

// lag is a sale of which Redis has lost something.
type lag struct {
	mark  pipeline.Watermark
	holds holding
	why   string // absent, accepts, releases or waitlist: labels a metric
}

// holding is what Redis has of a sale on a partition.
type holding struct {
	there bool
	redisstore.SaleCounters
}

func (h holding) behind(m pipeline.Watermark) string {
	switch {
	case !h.there:
		return "absent"
	case h.Accepted < m.Accepted:
		return "accepts"
	case h.Released < m.Released:
		return "releases"
	case h.Tickets < m.Tickets:
		return "waitlist"
	default:
		return ""
	}
}

// holds reads what Redis has. What can't be read is as good as lost: one such sale must keep no other closed.
func (v *Verifier) holds(ctx context.Context, m pipeline.Watermark) (holding, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	counters, err := redisstore.ReadSale(ctx, v.Redis, v.Keys, pipeline.SalePartition{SaleID: m.SaleID, Partition: m.Partition})
	if pipeline.KindOf(err) == pipeline.KindNotLoaded || redisstore.IsUnreadable(err) {
		return holding{}, nil
	}
	return holding{err == nil, counters}, err
}

// Job compares the counters of a trusted Redis with Postgres, and rebuilds what is behind: a sale that somebody deleted, or
// a state that was put in its place under the same server process.
func (v *Verifier) Job() pipeline.Job {
	return pipeline.Job{Name: "watch", Every: watchEvery, Run: func(ctx context.Context) error {
		states, _, err := v.look(ctx)
		if err != nil {
			return err
		}
		var trusted []pipeline.Partition
		for p, state := range states {
			if state == lua.Trusted {
				trusted = append(trusted, pipeline.Partition(p))
			}
		}
		r := v.newRound("watch")
		behind, err := r.behind(ctx, trusted)
		if err != nil || len(behind) == 0 {
			return err
		}
		var lossy []pipeline.Partition
		for p := range behind {
			lossy = append(lossy, p)
		}
		v.Log.Error("Redis has lost something without a restart; its partitions are verified anew", "partitions", fmt.Sprint(lossy))
		_, err = v.Store.RunExclusively(ctx, verifyName, func(ctx context.Context) error { return r.verify(ctx, lossy) })
		return err
	}}
}

// ensureTimeout bounds EnsureVerified: enough for any state that is not lost.
const ensureTimeout = 30 * time.Second

// EnsureVerified returns when every partition is trusted: at once in a running installation, after a look at each in a new
// one. It is for programs that define sales and may be the first to talk to this Redis.
func EnsureVerified(ctx context.Context, rdb redis.UniversalClient, keys pipeline.Keys, store VerifyStore, partitions int, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, ensureTimeout)
	defer cancel()
	return NewVerifier(VerifierConfig{Redis: rdb, Keys: keys, Store: store, Partitions: partitions, Log: log}).Ensure(ctx)
}
