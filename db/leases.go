package db

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"sluice/pipeline/retry"
)

const (
	// leaseTTL is how long an election outlives its holder: the time for which a process that was stopped, or a machine
	// that vanished, keeps the others from taking over.
	leaseTTL = 3 * time.Second
	// leaseRenewal is the time between two renewals: two may fail.
	leaseRenewal = leaseTTL / 3
)

// errLeaseLost is why the context of a do ends whose lease could not be renewed in time.
var errLeaseLost = errors.New("the lease was not renewed in time")

// RunExclusively runs do, unless another call runs under the same name: then it returns false at once. The holder is
// elected for three seconds and renews its lease while do works; where it can't, do's context ends before another call
// may begin by Postgres' clock. A process that stands still notices that only when it goes on: what do writes must be
// safe against one that took over.
func (s *Store) RunExclusively(ctx context.Context, name string, do func(context.Context) error) (ran bool, err error) {
	holder := uuid.NewString()
	asked := time.Now()
	if ran, err = s.takeLease(ctx, name, holder); err != nil || !ran {
		if err != nil { // it may have been taken all the same
			s.freeLease(context.WithoutCancel(ctx), name, holder)
		}
		return false, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() { s.renewLease(ctx, cancel, name, holder, asked) })
	defer func() {
		cancel(nil)
		renewing.Wait()
		s.freeLease(context.WithoutCancel(ctx), name, holder)
	}()
	if err = do(ctx); err != nil && errors.Is(context.Cause(ctx), errLeaseLost) {
		err = errors.Join(err, errLeaseLost)
	}
	return true, wrap(err, "run "+name)
}

// takeLease takes a lease that is free or expired, or renews the holder's own. It reports whether the holder has it.
// One that would last longer than any does was taken under a clock that is set back since: it gets the whole time of a
// lease from now on, which is when its holder, if it lives, believes at the latest that it ends.
func (s *Store) takeLease(ctx context.Context, name, holder string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, leaseTTL)
	defer cancel()
	ours, err := queryAll(ctx, s, "take the lease "+name, pgx.RowTo[bool], `
		insert into leases as l (name, holder, expires_at)
		values ($1, $2::text::uuid, clock_timestamp() + $3::interval)
		on conflict (name) do update set expires_at = excluded.expires_at,
			holder = case when l.expires_at <= clock_timestamp() then excluded.holder else l.holder end
		where l.holder = excluded.holder or l.expires_at <= clock_timestamp()
			or l.expires_at > clock_timestamp() + $3::interval
		returning holder = $2::text::uuid`, name, holder, leaseTTL)
	return len(ours) == 1 && ours[0], err
}

// renewLease renews a lease until the context ends, and cancels it when the lease is lost, or over by this machine's
// clock.
func (s *Store) renewLease(
	ctx context.Context, cancel context.CancelCauseFunc, name, holder string, asked time.Time,
) {
	over := time.AfterFunc(time.Until(asked.Add(leaseTTL)), func() { cancel(errLeaseLost) })
	defer over.Stop()
	for {
		retry.Sleep(ctx, leaseRenewal)
		if ctx.Err() != nil {
			return
		}
		asked = time.Now()
		switch held, err := s.takeLease(ctx, name, holder); {
		case err != nil: // tried again until it is over
		case held:
			over.Reset(time.Until(asked.Add(leaseTTL)))
		default:
			cancel(errLeaseLost)
			return
		}
	}
}

// freeLease lets the next one be elected at once. If it fails, the lease expires.
func (s *Store) freeLease(ctx context.Context, name, holder string) {
	ctx, cancel := context.WithTimeout(ctx, leaseTTL)
	defer cancel()
	_, _ = s.exec(ctx, "free the lease "+name,
		`delete from leases where name = $1 and holder = $2::text::uuid`, name, holder)
}
