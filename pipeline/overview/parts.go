package overview

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/redisstore"
)

const (
	searchPage = 1000 // entries or slots per read: under a millisecond of Redis' time
	// searchLimit bounds how many of them one search reads; some 2 s.
	searchLimit = 1_000_000
	// searchSlack is how far the clock of the api that made an order id may be ahead of Redis'.
	searchSlack = time.Minute
)

// Parts finds what Redis has of one order.
type Parts struct {
	Redis redis.UniversalClient
	Keys  pipeline.Keys
}

// Parts finds what Redis has of one order.
func (r *Reader) Parts() Parts { return Parts{r.Redis, r.Keys} }

// Delivery is which worker has an order's event.
type Delivery struct {
	Worker string // empty: none has got it yet
	Count  int64  // how often it was delivered
	Idle   time.Duration
}

// Lock is the lock that a worker holds while it persists an order.
type Lock struct {
	Token string
	Lease time.Duration // what is left of it
}

// Slot is a buyer's slot that names an order.
type Slot struct {
	lua.Slot
	UserID    string
	Partition pipeline.Partition
}

// Event looks for an order's event in the stream of a partition; nil: it is not there, settled for instance. The
// order's id was made just before the event, and both begin with a time in milliseconds. Errors: KindUnavailable, also
// where the stream is too long to look for one order.
func (s Parts) Event(ctx context.Context, p pipeline.Partition, id uuid.UUID) (*pipeline.Event, error) {
	from := "-"
	if id.Version() == 7 {
		seconds, nanos := id.Time().UnixTime()
		from = strconv.FormatInt(max(0, time.Unix(seconds, nanos).Add(-searchSlack).UnixMilli()), 10)
	}
	for range searchLimit / searchPage {
		page, err := s.Redis.XRangeN(ctx, s.Keys.Orders(p), from, "+", searchPage).Result()
		if err != nil {
			return nil, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not list the order events")
		}
		for _, m := range page {
			if m.Values["o"] != id.String() {
				continue
			}
			event, err := pipeline.DecodeEvent(p, m.ID, m.Values)
			if err != nil {
				event = pipeline.Event{
					Partition: p, EntryID: m.ID, OrderID: id.String(),
					UserID: fmt.Sprint(m.Values["u"]), SaleID: fmt.Sprint(m.Values["s"]),
				}
			}
			return &event, nil
		}
		if len(page) < searchPage {
			return nil, nil //nolint:nilnil // there is no such event, which is no error
		}
		from = "(" + page[len(page)-1].ID
	}
	return nil, pipeline.Errorf(pipeline.KindUnavailable, "the stream is too long to look for one order")
}

// Delivery finds the worker that has an event.
func (s Parts) Delivery(ctx context.Context, e *pipeline.Event) (Delivery, error) {
	pending, err := s.Redis.XPendingExt(ctx, &redis.XPendingExtArgs{
		Stream: s.Keys.Orders(e.Partition), Group: pipeline.Group, Start: e.EntryID, End: e.EntryID, Count: 1,
	}).Result()
	if err != nil && !absent(err) {
		return Delivery{}, unavailable(err)
	}
	if len(pending) != 1 {
		return Delivery{}, nil
	}
	return Delivery{Worker: pending[0].Consumer, Count: pending[0].RetryCount, Idle: pending[0].Idle}, nil
}

// Lock returns the lock on an order; nil: there is none.
func (s Parts) Lock(ctx context.Context, p pipeline.Partition, id uuid.UUID) (*Lock, error) {
	key := s.Keys.OrderLock(p, id.String())
	token, err := s.Redis.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil //nolint:nilnil // there is none, which is no error
	}
	if err != nil {
		return nil, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not return the order's lock")
	}
	lease, err := s.Redis.PTTL(ctx, key).Result()
	if err != nil {
		return nil, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not return the order's lock")
	}
	return &Lock{Token: token, Lease: lease}, nil
}

// Slot returns the slot of a known buyer, or looks through all of them, if it names this order; nil: none does. A
// buyer's slot may by now be another order's.
func (s Parts) Slot(ctx context.Context, sale *pipeline.Sale, id uuid.UUID, userID string) (*Slot, error) {
	if userID != "" {
		at := pipeline.SalePartition{SaleID: sale.ID, Partition: sale.PartitionOf(userID)}
		slots, err := redisstore.ReadSlots(ctx, s.Redis, s.Keys, at, []string{userID})
		if err != nil || slots[0].OrderID != id.String() {
			return nil, err
		}
		return &Slot{slots[0], userID, at.Partition}, nil
	}
	var found *Slot
	for _, p := range sale.Partitions {
		at := pipeline.SalePartition{SaleID: sale.ID, Partition: p}
		err := redisstore.EachSlot(ctx, s.Redis, s.Keys, at, func(userID string, slot lua.Slot, _ bool) bool {
			if slot.OrderID == id.String() {
				found = &Slot{slot, userID, p}
			}
			return found == nil
		})
		if err != nil || found != nil {
			return found, err
		}
	}
	return nil, nil //nolint:nilnil // there is none, which is no error
}
