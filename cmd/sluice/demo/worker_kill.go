package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/buyers"
	"sluice/internal/programs"
	"sluice/pipeline"
)

const (
	soldBefore = 4 // a quarter of the stock is sold before the worker may die
	// until half of it is sold, it dies only with orders that Postgres does not have
	choosyUntil = 2
	freezeTries = 200 // times a worker is stopped and looked at
	// how long one look lasts; orders keep arriving meanwhile, also at the stopped worker
	freezeLook  = 40 * time.Millisecond
	freezeQuiet = 20 * time.Millisecond // then what it had sent before it was stopped has arrived too
	lookEvery   = 2 * time.Millisecond  // between two questions to Redis
	countEvery  = 50 * time.Millisecond // between two questions to Postgres
	// within it all that the dead worker had in flight must be persisted; promised are 20 s
	takeoverLimit = 30 * time.Second
	// orders that are listed of what is pending at a worker: more than its lanes' batches
	mostPending = 1000
	runTime     = 5 * time.Millisecond   // for which a worker that had nothing may go on
	tooLate     = 150 * time.Millisecond // after the last sale nothing is pending any more
)

// WorkerKill is the death of a worker in the middle of its work, and what came of it.
type WorkerKill struct {
	Worker      string     `json:"worker"`
	PID         int        `json:"pid"`
	Looks       int        `json:"looks"`       // how often it was stopped until orders were in flight
	InHand      int        `json:"in_hand"`     // orders pending for it when it was killed
	Uncommitted int        `json:"uncommitted"` // those that Postgres did not have at that moment
	Takeovers   []Takeover `json:"takeovers"`
	PersistedMS int64      `json:"persisted_ms"` // from the kill until Postgres had all of them; 0: it never had

	orders []string
	at     time.Time
}

// Takeover is a living worker that claims what was pending at the dead one.
type Takeover struct {
	Worker  string `json:"worker"`
	Orders  int    `json:"orders"`
	AfterMS int64  `json:"after_ms"` // since the kill
}

// killWorker kills a worker while orders are pending at it. To be certain of that, and not only likely, the
// worker is first stopped in its tracks (SIGSTOP); Redis then shows what is pending, and nothing can change that any
// more. If nothing is, it goes on, and is stopped again a moment later. The same while that is only what Postgres has
// already and nobody could lose, as long as there is time for a better moment.
func (s *session) killWorker(ctx context.Context) error {
	if err := s.awaitSold(ctx, s.opts.Stock/soldBefore); err != nil {
		return err
	}
	select {
	case <-s.nodeBack: // until then nobody could say what Postgres has
	case <-ctx.Done():
		return ctx.Err()
	}
	victim := s.stack.Workers[0]
	for look := range freezeTries {
		orders, err := s.freeze(ctx, victim)
		if err != nil {
			return err
		}
		persisted, err := s.ledger.persisted(ctx, orders)
		if err != nil {
			return err
		}
		k := &WorkerKill{
			Worker: victim.Name, PID: victim.PID(), Looks: look + 1, InHand: len(orders), Uncommitted: len(orders) - persisted,
			orders: orders,
		}
		if k.Uncommitted > 0 || k.InHand > 0 && s.history.Tally().Orders > s.opts.Stock/choosyUntil {
			s.killed = k
			return s.kill(ctx, victim)
		}
		if err := victim.Resume(); err != nil {
			return err
		}
		if s.history.Tally().Orders >= s.opts.Stock && look > int(tooLate/freezeLook) {
			break
		}
		buyers.Sleep(ctx, runTime)
	}
	return errors.New("the worker could not be caught with an order in its hands; try again with a lower --rate or a larger --stock")
}

func (s *session) awaitSold(ctx context.Context, units int) error {
	for s.history.Tally().Orders < units {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		select {
		case <-s.rushOver:
			return fmt.Errorf("only %d of %d units were sold in the whole rush", s.history.Tally().Orders, s.opts.Stock)
		default:
			buyers.Sleep(ctx, lookEvery)
		}
	}
	return nil
}

// freeze stops a worker and returns the orders that are pending at it.
func (s *session) freeze(ctx context.Context, victim *programs.Process) ([]string, error) {
	if err := victim.Pause(); err != nil {
		return nil, err
	}
	for until := time.Now().Add(freezeLook); time.Now().Before(until); buyers.Sleep(ctx, lookEvery) {
		pending, err := s.pending(ctx, victim)
		if err != nil {
			return nil, err
		}
		if len(pending) == 0 {
			continue
		}
		buyers.Sleep(ctx, freezeQuiet)
		if pending, err = s.pending(ctx, victim); err != nil || len(pending) > 0 {
			return s.ordersOf(ctx, pending), err
		}
	}
	return nil, ctx.Err()
}

// pending lists the stream entries that are pending for a worker.
func (s *session) pending(ctx context.Context, worker *programs.Process) ([]redis.XPendingExt, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return s.redis.XPendingExt(ctx, &redis.XPendingExtArgs{
		Stream: s.stream(), Group: pipeline.Group, Consumer: worker.Consumer(), Start: "-", End: "+", Count: mostPending,
	}).Result()
}

// ordersOf reads the order ids out of the entries. An entry that is gone was settled.
func (s *session) ordersOf(ctx context.Context, entries []redis.XPendingExt) []string {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	pipe := s.redis.Pipeline()
	reads := make([]*redis.XMessageSliceCmd, len(entries))
	for i, e := range entries {
		reads[i] = pipe.XRange(ctx, s.stream(), e.ID, e.ID)
	}
	_, _ = pipe.Exec(ctx) // what can't be read is not counted
	var orders []string
	for _, read := range reads {
		for _, m := range read.Val() {
			if id, ok := m.Values["o"].(string); ok {
				orders = append(orders, id)
			}
		}
	}
	return orders
}

// inFlightAtKill lists the orders of the worker when it was killed; none before its death.
func (s *session) inFlightAtKill() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight
}

// kill ends the stopped worker and waits until everything it had is in Postgres, whichever worker brings it there.
func (s *session) kill(ctx context.Context, victim *programs.Process) error {
	k := s.killed
	if err := victim.Kill(); err != nil {
		return err
	}
	k.at = time.Now()
	s.mu.Lock()
	s.inFlight = k.orders
	s.mu.Unlock()
	s.narrator.notef("✗ %s (process %d) is dead: kill -9 with %s in its hands, %d of them not in Postgres yet",
		k.Worker, k.PID, plural(k.InHand, "order"), k.Uncommitted)
	for time.Since(k.at) < takeoverLimit && ctx.Err() == nil {
		n, err := s.ledger.persisted(ctx, k.orders)
		if err != nil {
			return err
		}
		if n == k.InHand {
			k.PersistedMS = max(1, time.Since(k.at).Milliseconds())
			return nil
		}
		buyers.Sleep(ctx, countEvery)
	}
	return ctx.Err() // the checks say what is missing
}

// How package pipeline logs that a worker takes over from a dead one.
const (
	messageTaken = "took over pending events"
	reasonDead   = "dead_worker"
)

type takenOver struct {
	worker string
	orders int
	at     time.Time
}

// onLine notes what the processes log that belongs to the story.
func (s *session) onLine(line programs.Line) {
	s.warnings.Add(line)
	if line.Message == messageTaken && line.Field("reason") == reasonDead {
		var orders int
		_, _ = fmt.Sscan(line.Field("events"), &orders) // 0 then fails the check
		s.mu.Lock()
		defer s.mu.Unlock()
		s.taken = append(s.taken, takenOver{line.Process, orders, line.Time})
	}
}

// takeovers adds up what each worker took over.
func (s *session) takeovers(since time.Time) []Takeover {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Takeover
	for _, t := range s.taken {
		i := slices.IndexFunc(list, func(known Takeover) bool { return known.Worker == t.worker })
		if i < 0 {
			list = append(list, Takeover{Worker: t.worker, AfterMS: t.at.Sub(since).Milliseconds()})
			i = len(list) - 1
		}
		list[i].Orders += t.orders
	}
	return list
}

// narrateTakeover says which workers took over, as they logged it.
func (s *session) narrateTakeover() {
	k := s.killed
	for _, t := range s.takeovers(k.at) {
		k.Takeovers = append(k.Takeovers, t)
		s.narrator.notef("✓ %s noticed after %s and took over %s", t.Worker, seconds(t.AfterMS),
			plural(t.Orders, "order"))
	}
	switch {
	case k.Uncommitted == 0:
		s.narrator.notef("✓ Postgres had everything the dead worker held: only its acknowledgement was missing")
	case k.PersistedMS > 0:
		s.narrator.notef("✓ everything the dead worker held was in Postgres %s after its death", seconds(k.PersistedMS))
	}
}

// takenOver is what must be true of the kill.
func (k *WorkerKill) takenOver() buyers.Check {
	c := buyers.Check{Name: "what the killed worker held was persisted by others"}
	if k == nil {
		c.Detail = "no worker was killed"
		return c
	}
	orders := 0
	for _, t := range k.Takeovers {
		orders += t.Orders
	}
	c.OK = k.InHand > 0 && orders >= k.InHand && k.PersistedMS > 0
	c.Detail = fmt.Sprintf("%d in its hands, %d taken over", k.InHand, orders)
	return c
}
