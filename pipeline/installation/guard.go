package installation

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
)

// Guard keeps a process' connections from a Redis that belongs to another installation. Each new connection is asked first, so
// that no name or failover leads elsewhere unnoticed. Where a server is given other data under open connections, the next look
// of the verifier tells, and from then on every command is refused but the looks themselves. It knows no id before Set.
type Guard struct {
	keys pipeline.Keys
	id   atomic.Pointer[guarded]
	away atomic.Pointer[error] // why commands are refused; nil while they are not
}

type guarded struct {
	id         string
	partitions int
}

// NewGuard returns a Guard that lets everything pass until Set.
func NewGuard(keys pipeline.Keys) *Guard { return &Guard{keys: keys} }

// Set tells the id of the process' own installation, and its number of partitions.
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
	return nil // a server that can't tell now (it reads its data, say) refuses the command itself
}

// Found takes what a verifier's look found: nil, or why this Redis must not be used. Any other error tells nothing new.
func (g *Guard) Found(err error) {
	switch {
	case err == nil:
		g.away.Store(nil)
	case IsForeign(err):
		g.away.Store(&err)
	}
}

type lookKey struct{}

// WithLook marks the calls that a Guard always lets pass.
func WithLook(ctx context.Context) context.Context { return context.WithValue(ctx, lookKey{}, true) }

func (g *Guard) refuses(ctx context.Context) error {
	if away := g.away.Load(); away != nil && ctx.Value(lookKey{}) == nil {
		return *away
	}
	return nil
}

// DialHook lets every connection be made: OnConnect asks it. With the next two it is redis.Hook.
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
