package deadletter

import (
	"context"
	"log/slog"

	"sluice/pipeline"
)

// BuryStore writes dead letters.
type BuryStore interface {
	// BuryEvent writes the letter and, unless the event is nil, a rejected order and the release of its units, all in one
	// transaction. A letter of the same partition and entry is written once.
	BuryEvent(ctx context.Context, letter Message, event *pipeline.Event) error
}

// Burier gives events up: the one way in which an accepted order ends without ever standing.
type Burier struct {
	store   BuryStore
	metrics *Metrics
	log     *slog.Logger
}

// NewBurier returns a Burier over a store. Without metrics (nil) nothing is exported.
func NewBurier(store BuryStore, m *Metrics, log *slog.Logger) *Burier {
	if m == nil {
		m = NewMetrics(nil)
	}
	return &Burier{store: store, metrics: m, log: log}
}

// Bury writes the letter, the rejected order and the release of its units. Without an event (nil), or where not even a
// rejected order can be made of it, only the letter is written. Repeating it changes nothing. Errors: KindUnavailable.
func (b *Burier) Bury(ctx context.Context, letter Message, event *pipeline.Event) error {
	err := b.store.BuryEvent(ctx, letter, event)
	if event != nil && pipeline.KindOf(err) == pipeline.KindData {
		err = b.store.BuryEvent(ctx, letter, nil)
	}
	if err != nil {
		return err
	}
	b.metrics.letters.WithLabelValues(letter.Reason).Inc()
	b.log.Error("event became a dead letter",
		"partition", letter.Partition, "entry", letter.EntryID, "reason", letter.Reason,
		"sale", letter.SaleID, "order", letter.OrderID, "error", letter.Error)
	return nil
}

// BuryLost rejects an order that Redis lost after it was accepted, and that can't stand any more. The entry id stands
// for the event that is gone: one that is made of the order's id makes the letter the same whichever process writes it.
func (b *Burier) BuryLost(ctx context.Context, e *pipeline.Event, entryID, why string) error {
	return b.Bury(ctx, Message{
		Partition: e.Partition, EntryID: entryID, SaleID: e.SaleID, OrderID: e.OrderID, Payload: e.Fields(),
		Reason: RedisLost, Error: why,
	}, e)
}
