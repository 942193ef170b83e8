package installation

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// errUnowned says that a partition belongs to nobody yet; the next verification takes it.
var errUnowned = pipeline.Errorf(
	pipeline.KindUnavailable, "this Redis belongs to no installation yet; it does as soon as it is verified",
)

// errForeign says that a Redis belongs to another database. It is KindUnavailable while running (the right Redis may
// come back) and KindInvalid at start, see Check.
func errForeign(kind pipeline.Kind, p pipeline.Partition, owner, id string) error {
	return foreign{
		pipeline.Errorf(kind, "this Redis belongs to another installation (partition %s to %s), and this database to %s: "+
			"its orders are not ours; set REDIS_URL and DATABASE_URL to a pair, "+
			"or use FLUSHALL if nobody needs what this Redis holds",
			p, owner, id),
	}
}

// IsForeign reports whether an error says that a Redis belongs to another installation.
func IsForeign(err error) bool { return errors.Is(err, foreign{}) }

// foreign is the type of the errors of errForeign.
type foreign struct{ error }

func (foreign) Is(target error) bool { _, ok := target.(foreign); return ok }
func (f foreign) Unwrap() error      { return f.error }

// Check returns a KindInvalid error when any partition belongs to another installation than the one with this id:
// nothing may be taken from that Redis, or put into it. A partition that belongs to nobody is no error. Asked about the
// partitions of other nodes of a cluster, it does not compare what this node does not have.
func Check(ctx context.Context, rdb redis.Cmdable, keys pipeline.Keys, partitions int, id string) error {
	all := make([]pipeline.Partition, partitions)
	for p := range all {
		all[p] = pipeline.Partition(p)
	}
	return ownership{id: id, kind: pipeline.KindInvalid}.check(ctx, rdb, keys, all)
}

// CheckOwners returns an error when any of these partitions does not belong to the installation with this id: a foreign
// error (see IsForeign) of KindUnavailable where it belongs to another one, KindUnavailable where it belongs to nobody
// yet.
func CheckOwners(
	ctx context.Context, rdb redis.Cmdable, keys pipeline.Keys, partitions []pipeline.Partition, id string,
) error {
	return ownership{id: id, kind: pipeline.KindUnavailable, must: true}.check(ctx, rdb, keys, partitions)
}

// CheckServers is CheckOwners, and fails with ErrSuperseded where a server was verified in an earlier generation than
// the fence knows of.
func CheckServers(
	ctx context.Context, rdb redis.Cmdable, keys pipeline.Keys, partitions []pipeline.Partition, id string, fence *Fence,
) error {
	o := ownership{id: id, kind: pipeline.KindUnavailable, must: true, fence: fence}
	return o.check(ctx, rdb, keys, partitions)
}

// ownership is what partitions are compared with.
type ownership struct {
	id   string
	kind pipeline.Kind // of the error for a foreign partition
	must bool          // a partition that belongs to nobody, or is on another node of a cluster, is an error too

	fence *Fence // nil: any server is good that belongs to the installation
}

func (o ownership) check(
	ctx context.Context, rdb redis.Cmdable, keys pipeline.Keys, partitions []pipeline.Partition,
) error {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	pipe := rdb.Pipeline()
	states := make([]*redis.SliceCmd, len(partitions))
	fenced := make([]pipeline.Generation, len(partitions))
	for i, p := range partitions {
		fenced[i] = o.fence.Generation(p) // before Redis is asked: a verification that begins later is no reason
		states[i] = pipe.MGet(ctx, keys.Installation(p), keys.Generation(p), keys.Trusted(p))
	}
	if _, err := retry.Exec(ctx, pipe); err != nil {
		return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not say to which installation it belongs")
	}
	for i, p := range partitions {
		state, err := states[i].Result()
		if redis.HasErrorPrefix(err, "MOVED") && !o.must {
			continue
		}
		if err != nil {
			return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not say to which installation it belongs")
		}
		owner, owned := state[0].(string)
		switch {
		case !owned && o.must:
			return errUnowned
		case owned && owner != o.id:
			return errForeign(o.kind, p, owner, o.id)
		case replaced(state[1], state[2], fenced[i]):
			return ErrSuperseded
		}
	}
	return nil
}

// replaced reports whether a server was verified in an earlier generation than another one. While it is being verified
// itself it does not have its new generation yet.
func replaced(generation, trusted any, fence pipeline.Generation) bool {
	if trust, _ := trusted.(string); strings.HasPrefix(trust, string(lua.Verifying)+":") {
		return false
	}
	text, _ := generation.(string)
	verified, _ := strconv.ParseInt(text, 10, 64) // absent, or nonsense: never verified
	return verified < int64(fence)
}
