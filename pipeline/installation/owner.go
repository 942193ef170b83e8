package installation

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"sluice/pipeline"
	"sluice/pipeline/retry"

	"github.com/redis/go-redis/v9"
)

// errNobodys says that a partition belongs to nobody yet; the next verification takes it.
var errNobodys = pipeline.Errorf(pipeline.KindUnavailable, "this Redis belongs to no installation yet; it does as soon as it is verified")

// errForeign says that a Redis belongs to another database. It is KindUnavailable while running (the right Redis may come
// back) and KindInvalid at start, see CheckInstallation.
func errForeign(kind pipeline.Kind, p pipeline.Partition, owner, id string) error {
	return foreign{pipeline.Errorf(kind, "this Redis belongs to another installation (partition %s to %s), and this database to %s: "+
		"its orders are not ours; set REDIS_URL and DATABASE_URL to a pair, or use FLUSHALL if nobody needs what this Redis holds",
		p, owner, id)}
}

// IsForeign reports whether an error says that a Redis belongs to another installation.
func IsForeign(err error) bool { return errors.Is(err, foreign{}) }

// foreign marks the errors of errForeign.
type foreign struct{ error }

func (foreign) Is(target error) bool { _, ok := target.(foreign); return ok }
func (f foreign) Unwrap() error      { return f.error }

// CheckInstallation returns a KindInvalid error when any partition belongs to another installation than the one of this id:
// nothing may be taken from that Redis, or put into it. A partition that belongs to nobody is no error.
func Check(ctx context.Context, rdb redis.Cmdable, keys pipeline.Keys, partitions int, id string) error {
	all := make([]pipeline.Partition, partitions)
	for p := range all {
		all[p] = pipeline.Partition(p)
	}
	return CheckOwners(ctx, rdb, keys, all, id, pipeline.KindInvalid, false)
}

// CheckOwners compares the owners of some partitions with an id. With must, a partition that belongs to nobody is an error.
// Of a cluster's node it may be asked about partitions of other nodes: what the node does not have is not compared.
func CheckOwners(ctx context.Context, rdb redis.Cmdable, keys pipeline.Keys, partitions []pipeline.Partition, id string, kind pipeline.Kind, must bool) error {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	pipe := rdb.Pipeline()
	owners := make([]*redis.StringCmd, len(partitions))
	for i, p := range partitions {
		owners[i] = pipe.Get(ctx, keys.Installation(p))
	}
	_, _ = pipe.Exec(ctx) // each reply has its own error
	for i, p := range partitions {
		owner, err := owners[i].Result()
		switch {
		case errors.Is(err, redis.Nil):
			if must {
				return errNobodys
			}
		case redis.HasErrorPrefix(err, "MOVED") && !must:
		case err != nil:
			return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not tell to which installation it belongs")
		case owner != id:
			return errForeign(kind, p, owner, id)
		}
	}
	return nil
}

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
