package moves

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/installation"
	"sluice/pipeline/notification"
	"sluice/pipeline/retry"
)

const (
	// advanceTries bounds the steps of one move: two, each of which is taken again after a verification meanwhile.
	advanceTries = 6
	// finishEvery is the time between two looks for moves that nobody goes on with, and abandoned after how long one
	// counts as such: some round trips, and less than a buyer is asked to wait.
	finishEvery = time.Second
	abandoned   = time.Second
	// finishBatch bounds the moves that one look finishes.
	finishBatch = 100
	// forgetEvery and keptFor say when moves that ended are deleted: they are only of use to those who look for a fault.
	forgetEvery = time.Minute
	keptFor     = time.Hour
)

// Config is what a Mover works with.
type Config struct {
	Redis     redis.UniversalClient
	Keys      pipeline.Keys
	Store     Store
	Fence     *installation.Fence // nil: no server is known to be replaced
	HandOvers *notification.HandOverNotifier
	Metrics   *Metrics // nil: nothing is exported
	Log       *slog.Logger
}

// Mover moves units of a sale between its partitions. Each step of a move may be repeated, by any process, and each
// process may die between any two: another one finishes what it has begun. No unit is lost or made by that, and none is
// free on two partitions at once.
type Mover struct {
	Config

	seeks    singleflight.Group // by sale, partition and units: buyers who need the same move share it
	verdicts verdicts
}

// New returns a Mover.
func New(c Config) *Mover {
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	return &Mover{Config: c, verdicts: newVerdicts()}
}

// Move moves up to so many units. It returns the move with those that it has moved, 0 where none was free. After an
// error it may be under way, and is finished by a job.
func (m *Mover) Move(ctx context.Context, saleID string, from, to pipeline.Partition, units int64) (Move, error) {
	begun, err := m.Store.BeginMove(ctx, Move{SaleID: saleID, From: from, To: to, Wanted: units})
	if err != nil {
		return begun, err
	}
	return m.advance(ctx, begun, units)
}

// advance takes the steps that are left of a move, wherever it is. Wanted is 0 for who has not begun it: what nobody
// has taken so far is not taken any more.
func (m *Mover) advance(ctx context.Context, move Move, wanted int64) (Move, error) {
	for range advanceTries {
		if move.State.Ended() {
			m.Metrics.ended(move)
			return move, nil
		}
		// Before Redis is asked: what it answers holds until the next verification begins.
		asked, err := m.Store.Generation(ctx)
		if err != nil {
			return move, err
		}
		step := m.take
		if move.State == Taken {
			step = m.give
		}
		next, err := step(ctx, move, wanted, asked)
		switch {
		case errors.Is(err, lua.ErrMoveFinished): // by another process, as Postgres knew when that number was read
			move.State = Void
			return move, nil
		case errors.Is(err, lua.ErrUntrusted), errors.Is(err, lua.ErrNotLoaded):
			return move, pipeline.Wrap(pipeline.KindNotLoaded, err, "units of sale "+move.SaleID+" can't be moved yet")
		case err != nil:
			return move, retry.Unavailable(err)
		}
		move = next
	}
	return move, pipeline.Errorf(pipeline.KindUnavailable, "Redis is being verified again and again")
}

func (m *Mover) take(ctx context.Context, move Move, wanted int64, asked pipeline.Generation) (Move, error) {
	keys, err := m.keysOf(move.SaleID, move.From)
	if err != nil {
		return move, err
	}
	call, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	units, served, err := lua.Take(call, m.Redis, keys, lua.Move{Number: move.Number, Units: wanted, Done: move.Done})
	if err != nil {
		return move, err
	}
	return m.Store.MoveTaken(ctx, move, units, asked, pipeline.Generation(served))
}

func (m *Mover) give(ctx context.Context, move Move, _ int64, asked pipeline.Generation) (Move, error) {
	keys, err := m.keysOf(move.SaleID, move.To)
	if err != nil {
		return move, err
	}
	call, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	served, handed, err := lua.Give(call, m.Redis, keys, move.SaleID, pipeline.HandOverMaxLag,
		lua.Move{Number: move.Number, Units: move.Units, Done: move.Done})
	if err != nil {
		return move, err
	}
	m.HandOvers.Publish(ctx, move.SaleID, move.To, handed)
	return m.Store.MoveGiven(ctx, move, asked, pipeline.Generation(served))
}

func (m *Mover) keysOf(saleID string, p pipeline.Partition) (lua.SaleKeys, error) {
	keys := m.Keys.ForSale(p, saleID)
	generation, err := m.Fence.Current(p)
	keys.Fence = int64(generation)
	return keys, err
}

// Jobs finish what processes have begun that died, and delete what is over.
func (m *Mover) Jobs() []pipeline.Job {
	return []pipeline.Job{
		{Name: "moves", Every: finishEvery, Run: func(ctx context.Context) error { return m.Finish(ctx, abandoned) }},
		{Name: "forget-moves", Every: forgetEvery, Run: func(ctx context.Context) error {
			return m.Store.ForgetMoves(ctx, keptFor)
		}},
	}
}

// Finish ends moves that nobody has gone on with for so long, some at a time. One that can't be ended delays no other.
func (m *Mover) Finish(ctx context.Context, idle time.Duration) error {
	due, err := m.Store.MovesUnderWay(ctx, idle, finishBatch)
	if err != nil {
		return err
	}
	var errs []error
	for _, move := range due {
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
		ended, err := m.advance(pipeline.Uninterrupted(ctx), move, 0)
		if errs = append(errs, err); err == nil {
			m.Log.Info("a move was finished that another process had begun", "sale", ended.SaleID, "move", ended.Number,
				"from", ended.From, "to", ended.To, "units", ended.Units, "state", ended.State)
		}
	}
	return errors.Join(errs...)
}
