package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"sluice/internal/table"
	"sluice/internal/view"
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

// orderSearch finds the parts of one order. It starts from the row where there is one, which names the buyer; else from
// the stream; else from the buyers' slots.
type orderSearch struct {
	*stores
	sale *pipeline.Sale
	id   uuid.UUID
}

func (s *orderSearch) view(ctx context.Context) (*orderView, error) {
	v := &orderView{SaleID: s.sale.ID, OrderID: s.id.String(), Releases: []release{}}
	if err := s.inRedis(ctx, v); err != nil {
		return nil, err
	}
	if err := s.inPostgres(ctx, v); err != nil {
		return nil, err
	}
	if v.Slot == nil {
		if err := s.slot(ctx, v); err != nil {
			return nil, err
		}
	}
	if v.Row == nil && v.Entry == nil && v.Slot == nil {
		if waiting, err := s.waiting(ctx, v); err != nil || waiting {
			return v, err
		}
		return nil, pipeline.Errorf(pipeline.KindNotFound, "sale %s has no order %s", s.sale.ID, s.id)
	}
	v.price(s.sale)
	return v, nil
}

// waiting looks whether the order is the one that a buyer on the waitlist is to get.
func (s *orderSearch) waiting(ctx context.Context, v *orderView) (bool, error) {
	entry, err := s.postgres.WaitlistEntry(ctx, s.sale.ID, v.OrderID)
	if pipeline.KindOf(err) == pipeline.KindNotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	v.UserID, v.Status = entry.UserID, "waiting"
	v.Waitlist = &waitView{Quantity: entry.Quantity, JoinedAt: view.Time(entry.JoinedAt)}
	if !entry.LeftAt.IsZero() {
		left := view.Time(entry.LeftAt)
		v.Status, v.Waitlist.LeftAt = "left", &left
	}
	return true, nil
}

// inRedis reads the stream before Postgres: an order that is persisted in between is then seen in both, never in none.
func (s *orderSearch) inRedis(ctx context.Context, v *orderView) error {
	for _, p := range s.sale.Partitions {
		event, err := s.entry(ctx, p)
		if err != nil {
			return err
		}
		if event != nil {
			v.UserID, v.Status = event.UserID, string(pipeline.StatusQueued)
			if v.Entry, err = s.delivery(ctx, event); err != nil {
				return err
			}
		}
		if err := s.lock(ctx, p, v); err != nil {
			return err
		}
	}
	return nil
}

// entry looks for the event. The order's id was made just before it, and both begin with a time in milliseconds.
func (s *orderSearch) entry(ctx context.Context, p pipeline.Partition) (*pipeline.Event, error) {
	from := "-"
	if s.id.Version() == 7 {
		seconds, nanos := s.id.Time().UnixTime()
		from = strconv.FormatInt(max(0, time.Unix(seconds, nanos).Add(-searchSlack).UnixMilli()), 10)
	}
	for range searchLimit / searchPage {
		page, err := s.redis.XRangeN(ctx, s.keys.Orders(p), from, "+", searchPage).Result()
		if err != nil {
			return nil, unavailable(err, "Redis did not list the order events")
		}
		for _, m := range page {
			if m.Values["o"] != s.id.String() {
				continue
			}
			event, err := pipeline.DecodeEvent(p, m.ID, m.Values)
			if err != nil {
				event = pipeline.Event{Partition: p, EntryID: m.ID, UserID: fmt.Sprint(m.Values["u"])}
			}
			return &event, nil
		}
		if len(page) < searchPage {
			return nil, nil //nolint:nilnil // there is no such event, which is no error
		}
		from = "(" + page[len(page)-1].ID
	}
	return nil, unavailable(errors.New("searched "+table.Number(searchLimit)+" events"),
		"the stream is too long to look for one order")
}

// delivery finds the worker that has the event.
func (s *orderSearch) delivery(ctx context.Context, e *pipeline.Event) (*entryView, error) {
	v := &entryView{Partition: e.Partition.String(), ID: e.EntryID}
	pending, err := s.redis.XPendingExt(ctx, &redis.XPendingExtArgs{
		Stream: s.keys.Orders(e.Partition), Group: pipeline.Group, Start: e.EntryID, End: e.EntryID, Count: 1,
	}).Result()
	if err != nil && !noGroup(err) {
		return nil, unavailable(err, "Redis did not say which worker has the event")
	}
	if len(pending) == 1 {
		v.Consumer, v.Deliveries, v.IdleMS = &pending[0].Consumer, pending[0].RetryCount, pending[0].Idle.Milliseconds()
	}
	return v, nil
}

func (s *orderSearch) lock(ctx context.Context, p pipeline.Partition, v *orderView) error {
	key := s.keys.OrderLock(p, s.id.String())
	token, err := s.redis.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		return unavailable(err, "Redis did not return the order's lock")
	}
	lease, err := s.redis.PTTL(ctx, key).Result()
	if err != nil {
		return unavailable(err, "Redis did not return the order's lock")
	}
	v.Lock = &lockView{Token: token, LeaseMS: lease.Milliseconds()}
	return nil
}

func (s *orderSearch) inPostgres(ctx context.Context, v *orderView) error {
	order, err := s.postgres.Order(ctx, s.sale.ID, s.id.String())
	if pipeline.KindOf(err) == pipeline.KindNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	v.UserID, v.Status, v.Row = order.UserID, string(order.Status), viewRow(&order)
	pg, err := dialPostgres(ctx, s.cfg.DatabaseURL)
	if err != nil {
		return err
	}
	defer pg.close()
	v.Releases, err = pg.releases(ctx, s.sale.ID, order.ID)
	return err
}

// slot reads the slot of a known buyer, or looks through all of them for this order.
func (s *orderSearch) slot(ctx context.Context, v *orderView) error {
	if v.UserID != "" {
		p := s.sale.PartitionOf(v.UserID)
		at := pipeline.SalePartition{SaleID: s.sale.ID, Partition: p}
		slots, err := redisstore.ReadSlots(ctx, s.redis, s.keys, at, []string{v.UserID})
		if err != nil {
			return err
		}
		s.take(p, v.UserID, slots[0], v)
		return nil
	}
	for _, p := range s.sale.Partitions {
		at := pipeline.SalePartition{SaleID: s.sale.ID, Partition: p}
		err := redisstore.EachSlot(ctx, s.redis, s.keys, at, func(userID string, slot lua.Slot, _ bool) bool {
			s.take(p, userID, slot, v)
			return true
		})
		if err != nil || v.Slot != nil {
			return err
		}
	}
	return nil
}

// take notes a slot if it names this order: the buyer's slot may by now be another order's.
func (s *orderSearch) take(p pipeline.Partition, userID string, slot lua.Slot, v *orderView) {
	if slot.OrderID != s.id.String() {
		return
	}
	v.UserID = userID
	if v.Status == "" {
		v.Status = string(pipeline.StatusQueued)
	}
	v.Slot = &slotView{
		Partition: p.String(), Quantity: slot.Quantity, Sequence: slot.Sequence,
		AcceptedAt: view.Time(time.UnixMilli(slot.AcceptedMS)), HasKey: slot.KeyHash != "",
	}
}
