package payments

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
)

// queuedTimeout bounds one look at one stream.
const queuedTimeout = time.Second

// queuedOrders knows whether an order that has no row can still be queued.
//
// A provider that names an order has learned of its accept, so by then its event is in the stream, or settled. An event
// is in the stream until its order has a row. So once everything that was in the sale's streams at some instant after
// that is settled, an order without a row does not exist. Where Redis' state is not verified nothing is concluded: a
// lost event may be resubmitted.
type queuedOrders struct {
	rdb  redis.UniversalClient
	keys pipeline.Keys
}

// instants are that instant for each of a sale's streams, in milliseconds of its server's clock; 0 until it was looked
// at.
type instants map[pipeline.Partition]int64

func newInstants(sale *pipeline.Sale) instants {
	m := make(instants, len(sale.Partitions))
	for _, p := range sale.Partitions {
		m[p] = 0
	}
	return m
}

// settled reports whether all events up to the instants are settled; it sets the instants that are 0. Errors:
// KindUnavailable, also where the state is not verified.
func (q queuedOrders) settled(ctx context.Context, sale *pipeline.Sale, at instants) (bool, error) {
	all := true
	for _, p := range sale.Partitions {
		settled, err := q.look(ctx, p, at)
		if err != nil {
			return false, err
		}
		all = all && settled // all instants are set in the first round
	}
	return all, nil
}

func (q queuedOrders) look(ctx context.Context, p pipeline.Partition, at instants) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, queuedTimeout)
	defer cancel()
	passed, instant, err := lua.Passed(ctx, q.rdb, q.keys.Orders(p), q.keys.Trusted(p), at[p])
	switch {
	case errors.Is(err, lua.ErrUntrusted):
		return false, pipeline.Errorf(pipeline.KindUnavailable, "Redis' state is not verified")
	case err != nil:
		return false, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not say what is queued")
	}
	at[p] = instant
	return passed, nil
}
