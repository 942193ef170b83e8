package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/programs"
	"sluice/pipeline"
)

const (
	soldBefore  = 4                      // a quarter of the stock is sold before the worker may die
	choosyUntil = 2                      // until half of it is sold, it dies only with orders that Postgres does not have
	freezeTries = 200                    // times a worker is stopped and looked at
	freezeLook  = 40 * time.Millisecond  // how long one look lasts; orders keep arriving meanwhile, also at the stopped worker
	freezeQuiet = 20 * time.Millisecond  // then what it had sent before it was stopped has arrived too
	lookEvery   = 2 * time.Millisecond   // between two questions to Redis
	countEvery  = 50 * time.Millisecond  // between two questions to Postgres
	rescueLimit = 30 * time.Second       // within it all that the dead worker held must be persisted; promised are 20 s
	mostHeld    = 1000                   // orders that are listed of what a worker holds: more than its lanes' batches
	breath      = 5 * time.Millisecond   // for which a worker that held nothing may go on
	tooLate     = 150 * time.Millisecond // after the last sale nothing is in anybody's hands any more
)

// Accident is the death of a worker in the middle of its work, and what came of it.
type Accident struct {
	Worker      string     `json:"worker"`
	PID         int        `json:"pid"`
	Looks       int        `json:"looks"`       // how often it was stopped until it held orders
	InHand      int        `json:"in_hand"`     // orders pending for it when it was killed
	Uncommitted int        `json:"uncommitted"` // those that Postgres did not have at that moment
	Takeovers   []Takeover `json:"takeovers"`
	PersistedMS int64      `json:"persisted_ms"` // from the kill until Postgres had all of them; 0: it never had

	orderIDs []string
	at       time.Time
}

// Takeover is a living worker that claims what the dead one held.
type Takeover struct {
	Worker  string `json:"worker"`
	Orders  int    `json:"orders"`
	AfterMS int64  `json:"after_ms"` // since the kill
}

// causeAccident kills a worker while orders are pending in its hands. To be certain of that, and not only likely, the
// worker is first stopped in its tracks (SIGSTOP); Redis then tells what it holds, and nothing can change that any more.
// If it holds nothing it goes on, and is stopped again a moment later. The same while it holds only what Postgres has
// already and nobody could lose, as long as there is time for a better moment.
func (s *show) causeAccident(ctx context.Context) error {
	if err := s.awaitSold(ctx, s.opts.Stock/soldBefore); err != nil {
		return err
	}
	victim := s.crew.Workers[0]
	for look := range freezeTries {
		orders, err := s.freeze(ctx, victim)
		if err != nil {
			return err
		}
		persisted, err := s.ledger.persisted(ctx, orders)
		if err != nil {
			return err
		}
		a := &Accident{
			Worker: victim.Name, PID: victim.PID(), Looks: look + 1, InHand: len(orders), Uncommitted: len(orders) - persisted,
			orderIDs: orders,
		}
		if a.Uncommitted > 0 || a.InHand > 0 && s.history.tally().accepted > s.opts.Stock/choosyUntil {
			s.accident = a
			return s.kill(ctx, victim)
		}
		if err := victim.Resume(); err != nil {
			return err
		}
		if s.history.tally().accepted >= s.opts.Stock && look > int(tooLate/freezeLook) {
			break
		}
		sleep(ctx, breath)
	}
	return errors.New("the worker could not be caught with an order in its hands; try again with a lower --rate or a larger --stock")
}

func (s *show) awaitSold(ctx context.Context, units int) error {
	for s.history.tally().accepted < units {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		select {
		case <-s.rushOver:
			return fmt.Errorf("only %d of %d units were sold in the whole rush", s.history.tally().accepted, s.opts.Stock)
		default:
			sleep(ctx, lookEvery)
		}
	}
	return nil
}

// freeze stops a worker and returns the orders in its hands.
func (s *show) freeze(ctx context.Context, victim *programs.Process) ([]string, error) {
	if err := victim.Pause(); err != nil {
		return nil, err
	}
	for until := time.Now().Add(freezeLook); time.Now().Before(until); sleep(ctx, lookEvery) {
		held, err := s.held(ctx, victim)
		if err != nil {
			return nil, err
		}
		if len(held) == 0 {
			continue
		}
		sleep(ctx, freezeQuiet)
		if held, err = s.held(ctx, victim); err != nil || len(held) > 0 {
			return s.ordersOf(ctx, held), err
		}
	}
	return nil, ctx.Err()
}

// held lists the stream entries that are pending for a worker.
func (s *show) held(ctx context.Context, m *programs.Process) ([]redis.XPendingExt, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return s.redis.XPendingExt(ctx, &redis.XPendingExtArgs{
		Stream: s.stream(), Group: pipeline.Group, Consumer: m.Consumer(), Start: "-", End: "+", Count: mostHeld,
	}).Result()
}

// ordersOf reads the order ids out of the entries. An entry that is gone was settled.
func (s *show) ordersOf(ctx context.Context, entries []redis.XPendingExt) []string {
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

// inHand lists the orders that the worker held when it was killed; none before its death.
func (s *show) inHand() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.killedWith
}

// kill ends the stopped worker and waits until everything it held is in Postgres, whoever brings it there.
func (s *show) kill(ctx context.Context, victim *programs.Process) error {
	a := s.accident
	if err := victim.Kill(); err != nil {
		return err
	}
	a.at = time.Now()
	s.mu.Lock()
	s.killedWith = a.orderIDs
	s.mu.Unlock()
	s.voice.notef("✗ %s (process %d) is dead: kill -9 with %s in its hands, %d of them not in Postgres yet",
		a.Worker, a.PID, plural(a.InHand, "order"), a.Uncommitted)
	return s.awaitRescue(ctx)
}
