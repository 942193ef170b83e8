package pipeline

import (
	"context"
	"maps"

	"github.com/redis/go-redis/v9"
)

// Why events become dead letters: these, and the outcomes of PersistOrders that are not an order that stands. The set is
// closed: it labels a metric.
const (
	LetterUndecodable = "undecodable" // not written by admit.lua
	LetterRedisLost   = "redis-lost"  // lost by Redis after it was accepted, and its units are gone
	LetterRefused     = "refused"     // Postgres refuses a value, for instance units beyond the sale's total
)

// refusedEvent is an event that can't become an order that stands.
type refusedEvent struct {
	lockedEvent
	reason string
	cause  error
}

// buryAll makes dead letters of refused events, one by one, and returns those that are buried. When Postgres stops
// answering the rest stays pending and is tried again.
func (w *Worker) buryAll(ctx context.Context, entries []Entry, refused []refusedEvent) ([]lockedEvent, error) {
	var buried []lockedEvent
	defer func() { w.finish(ctx, buried) }()
	for _, r := range refused {
		if err := w.bury(ctx, entries, r); err != nil {
			return buried, err
		}
		buried = append(buried, r.lockedEvent)
	}
	return buried, nil
}

// bury writes the letter, the rejected order and the release of its units in one transaction, and only then forgets the
// entry: whatever dies in between, the next delivery writes the same again, which changes nothing.
func (w *Worker) bury(ctx context.Context, entries []Entry, r refusedEvent) error {
	letter := DeadLetter{
		Partition: r.Partition, EntryID: r.EntryID, SaleID: r.SaleID, OrderID: r.OrderID, Reason: r.reason,
		Payload: payloadOf(entries, r), Deliveries: w.deliveries(ctx, r),
	}
	if r.cause != nil {
		letter.Error = r.cause.Error()
	}
	event := &r.Event
	if r.reason == LetterUndecodable {
		event = nil
		letter.SaleID, _ = letter.Payload["s"].(string)
		letter.OrderID, _ = letter.Payload["o"].(string)
	}
	err := w.store.BuryEvent(ctx, letter, event)
	if KindOf(err) == KindData { // not even a rejected order can be made of it
		err = w.store.BuryEvent(ctx, letter, nil)
	}
	if err != nil {
		return err
	}
	w.metrics.deadLetters.WithLabelValues(r.reason).Inc()
	w.log.Error("event became a dead letter", "partition", r.Partition, "entry", r.EntryID, "reason", r.reason,
		"sale", letter.SaleID, "order", letter.OrderID, "error", letter.Error)
	return nil
}

func payloadOf(entries []Entry, r refusedEvent) map[string]any {
	for _, e := range entries {
		if e.Partition == r.Partition && e.ID == r.EntryID {
			return maps.Clone(e.Fields)
		}
	}
	return nil
}

// deliveries asks how often the entry was delivered; 0 when Redis does not tell.
func (w *Worker) deliveries(ctx context.Context, r refusedEvent) int64 {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	pending, err := w.rdb.XPendingExt(ctx, &redis.XPendingExtArgs{
		Stream: w.keys.Orders(r.Partition), Group: Group, Start: r.EntryID, End: r.EntryID, Count: 1,
	}).Result()
	if err != nil || len(pending) == 0 {
		return 0
	}
	return pending[0].RetryCount
}
