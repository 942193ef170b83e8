package worker

import (
	"context"
	"maps"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/retry"
)

// buryAll makes dead letters of refused events, one by one, and returns those that are buried. When Postgres stops
// answering, the rest remains pending and is tried again.
func (w *Worker) buryAll(ctx context.Context, entries []entry, refused []refusedEvent) ([]lockedEvent, error) {
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

// bury makes a dead letter of an event. The entry is settled only afterwards: after a crash in between, the next
// delivery writes the same letter again, which changes nothing.
func (w *Worker) bury(ctx context.Context, entries []entry, r refusedEvent) error {
	letter := deadletter.Message{
		Partition: r.Partition, EntryID: r.EntryID, SaleID: r.SaleID, OrderID: r.OrderID, Reason: r.reason,
		Payload: payloadOf(entries, r), Deliveries: w.deliveries(ctx, r),
	}
	if r.cause != nil {
		letter.Error = r.cause.Error()
	}
	event := &r.Event
	if r.reason == deadletter.Undecodable {
		event = nil
		letter.SaleID, _ = letter.Payload["s"].(string)
		letter.OrderID, _ = letter.Payload["o"].(string)
	}
	return w.burier.Bury(ctx, letter, event)
}

func payloadOf(entries []entry, r refusedEvent) map[string]any {
	for _, e := range entries {
		if e.key() == r.key() {
			return maps.Clone(e.fields)
		}
	}
	return nil
}

// deliveries asks how often the entry was delivered; 0 when Redis does not say.
func (w *Worker) deliveries(ctx context.Context, r refusedEvent) int64 {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	pending, err := w.rdb.XPendingExt(ctx, &redis.XPendingExtArgs{
		Stream: w.keys.Orders(r.Partition), Group: pipeline.Group, Start: r.EntryID, End: r.EntryID, Count: 1,
	}).Result()
	if err != nil || len(pending) == 0 {
		return 0
	}
	return pending[0].RetryCount
}
