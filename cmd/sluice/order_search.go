package main

import (
	"context"
	"time"

	"github.com/google/uuid"

	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/overview"
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
		event, err := s.parts().Event(ctx, p, s.id)
		if err != nil {
			return err
		}
		if event != nil {
			v.UserID, v.Status = event.UserID, string(pipeline.StatusQueued)
			v.Entry = &entryView{Partition: p.String(), ID: event.EntryID}
			found, err := s.parts().Delivery(ctx, event)
			if err != nil {
				return err
			}
			if found.Worker != "" {
				v.Entry.Consumer, v.Entry.Deliveries, v.Entry.IdleMS = &found.Worker, found.Count, found.Idle.Milliseconds()
			}
		}
		held, err := s.parts().Lock(ctx, p, s.id)
		if err != nil {
			return err
		}
		if held != nil {
			v.Lock = &lockView{Token: held.Token, LeaseMS: held.Lease.Milliseconds()}
		}
	}
	return nil
}

// parts finds what Redis has of the order.
func (s *orderSearch) parts() overview.Parts { return overview.Parts{Redis: s.redis, Keys: s.keys} }

func (s *orderSearch) inPostgres(ctx context.Context, v *orderView) error {
	order, err := s.postgres.Order(ctx, s.sale.ID, s.id.String())
	if pipeline.KindOf(err) == pipeline.KindNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	v.UserID, v.Status, v.Row = order.UserID, string(order.Status), viewRow(&order)
	releases, err := s.postgres.Overview().ReleasesOf(ctx, s.sale.ID, order.ID)
	for _, r := range releases {
		of := release{
			Sequence: r.Sequence, Reason: r.Reason, Quantity: r.Quantity, CreatedAt: r.CreatedAt, Withdrawn: r.Withdrawn,
		}
		if !r.AppliedAt.IsZero() {
			of.AppliedAt = &r.AppliedAt
		}
		v.Releases = append(v.Releases, of)
	}
	return err
}

// slot reads the slot of a known buyer, or looks through all of them for this order.
func (s *orderSearch) slot(ctx context.Context, v *orderView) error {
	slot, err := s.parts().Slot(ctx, s.sale, s.id, v.UserID)
	if err != nil || slot == nil {
		return err
	}
	v.UserID = slot.UserID
	if v.Status == "" {
		v.Status = string(pipeline.StatusQueued)
	}
	v.Slot = &slotView{
		Partition: slot.Partition.String(), Quantity: slot.Quantity, Sequence: slot.Sequence,
		AcceptedAt: view.Time(time.UnixMilli(slot.AcceptedMS)), HasKey: slot.KeyHash != "",
	}
	return nil
}
