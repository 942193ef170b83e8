package installation

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
)

// Guard keeps a process' connections from a Redis that belongs to another installation. On each new connection the
// owner is checked first, so that no host name or failover leads to another Redis unnoticed. Where a server is given
// other data under open connections, the next look of the verifier finds out, and from then on every command is refused
// but the looks themselves. It knows no id before Set.
type Guard struct {
	keys pipeline.Keys
	id   atomic.Pointer[guarded]
	away atomic.Pointer[error] // why commands are refused; nil while they are not
}

type guarded struct {
	id         string
	partitions int
}

// NewGuard returns a Guard that refuses nothing until Set.
func NewGuard(keys pipeline.Keys) *Guard { return &Guard{keys: keys} }

// Set sets the id of the process' own installation, and its number of partitions.
func (g *Guard) Set(id string, partitions int) { g.id.Store(&guarded{id, partitions}) }

// OnConnect is redis.UniversalOptions.OnConnect.
func (g *Guard) OnConnect(ctx context.Context, cn *redis.Conn) error {
	own := g.id.Load()
	if own == nil {
		return nil
	}
	err := Check(ctx, cn, g.keys, own.partitions, own.id)
	if IsForeign(err) {
		return fmt.Errorf("connect: %w", err) // the client takes one layer off
	}
	return nil // a server that can't answer now (it is loading its data, say) refuses the command itself
}

// Found takes what a verifier's look found: nil, or why this Redis must not be used: it is another installation's, or
// ErrSuperseded. Any other error says nothing about that.
func (g *Guard) Found(err error) {
	switch {
	case err == nil:
		g.away.Store(nil)
	case IsForeign(err), errors.Is(err, ErrSuperseded):
		g.away.Store(&err)
	}
}

type lookKey struct{}

// WithLook is the context of calls that a Guard never refuses.
func WithLook(ctx context.Context) context.Context { return context.WithValue(ctx, lookKey{}, true) }

func (g *Guard) refuses(ctx context.Context) error {
	if away := g.away.Load(); away != nil && ctx.Value(lookKey{}) == nil {
		return *away
	}
	return nil
}

// DialHook lets every connection be made: OnConnect checks it. With the next two it is redis.Hook.
func (g *Guard) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook refuses a command while the server is not ours.
func (g *Guard) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := g.refuses(ctx); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook refuses commands while the server is not ours.
func (g *Guard) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := g.refuses(ctx)
		if err == nil {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
}
