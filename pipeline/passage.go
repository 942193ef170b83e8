package pipeline

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
)

// passageTimeout bounds one look at one stream.
const passageTimeout = time.Second

// passage tells whether an order that has no row can still be queued.
//
// Whoever speaks of an order has heard of its accept, so its event is in the stream by then, or settled. An event stays in
// the stream until its order has a row. So once everything that was in the sale's streams at some instant after he spoke is
// settled, an order without a row does not exist. Where Redis' state is not verified nothing is concluded: a lost event
// may be shown again.
type passage struct {
	rdb  redis.UniversalClient
	keys Keys
}

// marks hold that instant for each of a sale's streams, in milliseconds of its server's clock; 0 until it was looked at.
type marks map[Partition]int64

func newMarks(sale *Sale) marks {
	m := make(marks, len(sale.Partitions))
	for _, p := range sale.Partitions {
		m[p] = 0
	}
	return m
}

// marksAt are those of an instant by our own clock.
func marksAt(sale *Sale, at time.Time) marks {
	m := newMarks(sale)
	for p := range m {
		m[p] = at.UnixMilli()
	}
	return m
}

// passed reports whether all events of the marks' instant are settled; it sets the marks that are 0. Errors:
// KindUnavailable, also where the state is not verified.
func (s passage) passed(ctx context.Context, sale *Sale, m marks) (bool, error) {
	all := true
	for _, p := range sale.Partitions {
		passed, err := s.look(ctx, p, m)
		if err != nil {
			return false, err
		}
		all = all && passed // all marks are set in the first round
	}
	return all, nil
}

func (s passage) look(ctx context.Context, p Partition, m marks) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, passageTimeout)
	defer cancel()
	got, at, err := lua.Passed(ctx, s.rdb, s.keys.Orders(p), s.keys.Trusted(p), m[p])
	switch {
	case err != nil:
		return false, Wrap(KindUnavailable, err, "Redis did not tell what is queued")
	case got == lua.PassageUntrusted:
		return false, Errorf(KindUnavailable, "Redis' state is not verified")
	}
	m[p] = at
	return got == lua.PassagePassed, nil
}
