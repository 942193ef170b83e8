package moves_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/moves"
)

// errDied is what a step returns whose process has died: before it, or after it, so that nobody knows its outcome.
var errDied = errors.New("the process has died")

// death decides before and after which steps a process dies.
type death struct {
	chance float64 // at each of both
	deaths atomic.Int64
	at     string // if set, the one step that kills: "before take", for instance
}

func (d *death) strikes(when, step string) error {
	if d.at == when+" "+step || d.chance > 0 && rand.Float64() < d.chance { //nolint:gosec // chance
		d.deaths.Add(1)
		return errDied
	}
	return nil
}

// step runs one, unless the process dies before. It may die after it too.
func step[T any](d *death, name string, do func() (T, error)) (T, error) {
	var none T
	if err := d.strikes("before", name); err != nil {
		return none, err
	}
	got, err := do()
	if died := d.strikes("after", name); died != nil {
		return none, died
	}
	return got, err
}

// dyingStore is Postgres for such a process.
type dyingStore struct {
	moves.Store
	*death
}

func (s dyingStore) BeginMove(ctx context.Context, m moves.Move) (moves.Move, error) {
	return step(s.death, "begin", func() (moves.Move, error) { return s.Store.BeginMove(ctx, m) })
}

func (s dyingStore) MoveTaken(
	ctx context.Context, m moves.Move, units int64, asked, served pipeline.Generation,
) (moves.Move, error) {
	return step(s.death, "taken", func() (moves.Move, error) { return s.Store.MoveTaken(ctx, m, units, asked, served) })
}

func (s dyingStore) MoveGiven(
	ctx context.Context, m moves.Move, asked, served pipeline.Generation,
) (moves.Move, error) {
	return step(s.death, "given", func() (moves.Move, error) { return s.Store.MoveGiven(ctx, m, asked, served) })
}

// dyingRedis is Redis for such a process. Calls of take and give are told by what they send: the first has three keys
// and four arguments, the second seven and six.
type dyingRedis struct{ *death }

func (dyingRedis) DialHook(next redis.DialHook) redis.DialHook { return next }

func (dyingRedis) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (d dyingRedis) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		name := scriptOf(cmd)
		if name == "" {
			return next(ctx, cmd)
		}
		_, err := step(d.death, name, func() (struct{}, error) { return struct{}{}, next(ctx, cmd) })
		if errors.Is(err, errDied) {
			cmd.SetErr(err)
		}
		return err
	}
}

func scriptOf(cmd redis.Cmder) string {
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return ""
	}
	args := cmd.Args()
	switch keys, _ := args[2].(int); {
	case keys == 3 && len(args) == 3+3+4:
		return "take"
	case keys == 7 && len(args) == 3+7+6:
		return "give"
	}
	return ""
}
