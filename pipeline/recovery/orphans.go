package recovery

import (
	"context"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/redisstore"
)

// orphans returns the accepts of which a rebuild would find nothing but the buyer's slot: their orders have no row, and
// the stream has no event of them. Postgres was restored to an earlier state, or somebody deleted from the stream. A
// rebuild keeps such slots, because their buyers have receipts; a repair persists their orders. What can't be read is
// lost anyway.
func (v *Verifier) orphans(
	ctx context.Context, at pipeline.SalePartition, events []pipeline.Event,
) ([]pipeline.Event, error) {
	inStream := make(map[string]bool, len(events))
	for _, e := range events {
		inStream[e.OrderID] = true
	}
	var found, page []pipeline.Event
	var failed error
	check := func() {
		if failed == nil {
			var unknown []pipeline.Event
			unknown, failed = v.withoutRow(ctx, at.SaleID, page)
			found = append(found, unknown...)
		}
		page = page[:0]
	}
	err := redisstore.EachSlot(ctx, v.Redis, v.Keys, at, func(userID string, slot lua.Slot, ok bool) bool {
		if !ok || inStream[slot.OrderID] {
			return true
		}
		if e, valid := acceptOf(at, userID, slot); valid {
			page = append(page, e)
		}
		if len(page) == redisstore.PageSize {
			check()
		}
		return failed == nil
	})
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	check()
	return found, failed
}

// withoutRow returns those of some accepts whose orders have no row.
func (v *Verifier) withoutRow(
	ctx context.Context, saleID string, accepts []pipeline.Event,
) (unknown []pipeline.Event, err error) {
	if len(accepts) == 0 {
		return nil, nil
	}
	ids := make([]string, len(accepts))
	for i := range accepts {
		ids[i] = accepts[i].OrderID
	}
	known, err := v.Store.KnownOrders(ctx, saleID, ids)
	if err != nil {
		return nil, err
	}
	for _, e := range accepts {
		if !known[e.OrderID] {
			unknown = append(unknown, e)
		}
	}
	return unknown, nil
}

// acceptOf returns the accept that a slot describes, if it is a valid event: it is decoded like an entry of the stream.
func acceptOf(at pipeline.SalePartition, userID string, slot lua.Slot) (pipeline.Event, bool) {
	e := redisstore.EventOfSlot(at, userID, slot)
	_, err := pipeline.DecodeEvent(e.Partition, e.EntryID, e.Fields())
	return e, err == nil
}
