package installation

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

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

// ownership is what partitions are compared with.
type ownership struct {
	id   string
	kind pipeline.Kind // of the error for a foreign partition
	must bool          // a partition that belongs to nobody, or is on another node of a cluster, is an error too
}

func (o ownership) check(
	ctx context.Context, rdb redis.Cmdable, keys pipeline.Keys, partitions []pipeline.Partition,
) error {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	pipe := rdb.Pipeline()
	owners := make([]*redis.StringCmd, len(partitions))
	for i, p := range partitions {
		owners[i] = pipe.Get(ctx, keys.Installation(p))
	}
	if _, err := retry.Exec(ctx, pipe); err != nil {
		return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not say to which installation it belongs")
	}
	for i, p := range partitions {
		owner, err := owners[i].Result()
		switch {
		case errors.Is(err, redis.Nil):
			if o.must {
				return errUnowned
			}
		case redis.HasErrorPrefix(err, "MOVED") && !o.must:
		case err != nil:
			return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not say to which installation it belongs")
		case owner != o.id:
			return errForeign(o.kind, p, owner, o.id)
		}
	}
	return nil
}
