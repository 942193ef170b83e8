package redisstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// SaleCounters are a sale's counters in Redis on one partition, all of one instant.
type SaleCounters struct {
	Stock    int64 `redis:"stock"`    // units left
	Total    int64 `redis:"total"`    // units of the partition's share
	Accepted int64 `redis:"accepted"` // accepts so far; the sequence of the latest
	Released int64 `redis:"released"` // releases that gave something back
	Version  int64 `redis:"version"`  // of the sale's definition
	Tickets  int64 `redis:"tickets"`  // the latest ticket of the waitlist
	Waiting  int64 `redis:"waiting"`  // entries on the waitlist

	MovedIn      int64 `redis:"moved_in"`      // units that came from other partitions of the sale
	MovedOut     int64 `redis:"moved_out"`     // units that went to other partitions
	MovesSettled int64 `redis:"moves_settled"` // rebuilds that decided what becomes of moves
}

// ReadSale reads a sale's counters on one partition. Errors: KindNotLoaded; KindUnavailable, also where the key is not
// a sale (see IsUnreadable).
func ReadSale(
	ctx context.Context, rdb redis.Cmdable, keys pipeline.Keys, at pipeline.SalePartition,
) (SaleCounters, error) {
	var c SaleCounters
	const required = 6 // the first ones are in every sale
	read := rdb.HMGet(ctx, keys.Sale(at.Partition, at.SaleID),
		"state", "stock", "total", "accepted", "released", "version", "tickets", "waiting",
		"moved_in", "moved_out", "moves_settled")
	if err := read.Err(); redis.HasErrorPrefix(err, "WRONGTYPE") {
		return SaleCounters{}, pipeline.Wrap(pipeline.KindUnavailable, errUnreadable,
			"Redis holds something else in the place of sale "+at.SaleID)
	} else if err != nil {
		return SaleCounters{}, pipeline.Wrap(pipeline.KindUnavailable, err,
			"Redis did not answer with the counters of sale "+at.SaleID)
	}
	if err := read.Scan(&c); err != nil {
		return SaleCounters{}, pipeline.Wrap(pipeline.KindUnavailable, errors.Join(errUnreadable, err),
			"Redis holds counters of sale "+at.SaleID+" that are not numbers")
	}
	if slices.Contains(read.Val()[:required], nil) {
		return SaleCounters{}, pipeline.Errorf(pipeline.KindNotLoaded, "sale %s is not loaded yet", at.SaleID)
	}
	return c, nil
}

// errUnreadable is the cause of the errors about data in Redis that no script of ours wrote.
var errUnreadable = errors.New("not written by our scripts")

// IsUnreadable reports whether an error means that Redis answered with data that our scripts did not write.
func IsUnreadable(err error) bool { return errors.Is(err, errUnreadable) }

// RequireVerified returns a KindUnavailable error while what Redis has of a sale on a partition is not known to be all.
// hidden is what a buyer may miss until then.
func RequireVerified(
	ctx context.Context, rdb redis.Scripter, keys pipeline.Keys, at pipeline.SalePartition, hidden string,
) error {
	seen, err := lua.ReadTrust(ctx, rdb, keys.ForVerify(at.Partition, ""))
	switch {
	case err != nil:
		return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not say whether it is verified")
	case seen.Trust != lua.Trusted:
		return pipeline.Errorf(pipeline.KindUnavailable, "sale %s is being verified after a restart: %s shows again then",
			at.SaleID, hidden)
	}
	return nil
}

// ReadSlot reads a buyer's slot of a sale. Errors: KindNotFound, where it is free; KindUnavailable.
func ReadSlot(
	ctx context.Context, rdb redis.Cmdable, keys pipeline.Keys, at pipeline.SalePartition, userID string,
) (lua.Slot, error) {
	text, err := rdb.HGet(ctx, keys.Buyers(at.Partition, at.SaleID), userID).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return lua.Slot{}, pipeline.Errorf(pipeline.KindNotFound, "the buyer holds no slot in this sale")
	case err != nil:
		return lua.Slot{}, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not answer with the buyer's slot")
	}
	slot, err := lua.ParseSlot(text)
	if err != nil {
		return lua.Slot{}, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis holds a slot that can't be read")
	}
	return slot, nil
}

// Unreadable is the order id of a slot that can't be read. No order has it.
const Unreadable = "unreadable"

// ReadSlots returns the slots of some buyers of a sale on one partition; the zero Slot where there is none, and one of
// the order Unreadable where it can't be read. Errors: KindUnavailable.
func ReadSlots(
	ctx context.Context, rdb redis.Cmdable, keys pipeline.Keys, at pipeline.SalePartition, userIDs []string,
) ([]lua.Slot, error) {
	values, err := rdb.HMGet(ctx, keys.Buyers(at.Partition, at.SaleID), userIDs...).Result()
	if err != nil {
		return nil, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not answer with the buyers' slots")
	}
	slots := make([]lua.Slot, len(values))
	for i, value := range values {
		text, ok := value.(string)
		if !ok {
			continue
		}
		if slots[i], err = lua.ParseSlot(text); err != nil {
			slots[i] = lua.Slot{OrderID: Unreadable}
		}
	}
	return slots, nil
}

// EventOfSlot is the accept that a buyer's slot describes; its entry is named for the slot.
func EventOfSlot(at pipeline.SalePartition, userID string, slot lua.Slot) pipeline.Event {
	return pipeline.Event{
		Partition: at.Partition, EntryID: "slot:" + slot.OrderID, SaleID: at.SaleID, Sequence: slot.Sequence,
		OrderID: slot.OrderID, Number: slot.Number, UserID: userID, Quantity: slot.Quantity,
		AcceptedAt: time.UnixMilli(slot.AcceptedMS).UTC(), KeyHash: slot.KeyHash,
	}
}

// PageSize is how many slots or events one read returns, so that a big sale blocks Redis for no more than a
// millisecond.
const PageSize = 1000

// EachSlot calls do for every buyer's slot of a sale on one partition, with ok false for one that can't be decoded,
// until it returns false. A slot may come twice, even if it does not change. Errors: KindUnavailable.
func EachSlot(
	ctx context.Context, rdb redis.Cmdable, keys pipeline.Keys, at pipeline.SalePartition,
	do func(userID string, slot lua.Slot, ok bool) bool,
) error {
	return eachField(ctx, rdb, keys.Buyers(at.Partition, at.SaleID), func(userID, text string) bool {
		slot, err := lua.ParseSlot(text)
		return do(userID, slot, err == nil)
	})
}

// EachBuyer calls do for every buyer who has a slot of a sale on one partition, until it returns false. One who gets or
// loses it during the calls may be missing. Errors: KindUnavailable.
func EachBuyer(
	ctx context.Context, rdb redis.Cmdable, keys pipeline.Keys, at pipeline.SalePartition, do func(userID string) bool,
) error {
	return eachField(ctx, rdb, keys.Buyers(at.Partition, at.SaleID), func(userID, _ string) bool { return do(userID) })
}

// EachEnded calls do for every buyer of a sale on one partition with orders that have ended and had an idempotency key,
// until it returns false. Errors: KindUnavailable.
func EachEnded(
	ctx context.Context, rdb redis.Cmdable, keys pipeline.Keys, at pipeline.SalePartition, do func(userID string) bool,
) error {
	ended := keys.ForSale(at.Partition, at.SaleID).Ended
	return eachField(ctx, rdb, ended, func(userID, _ string) bool { return do(userID) })
}

// EachWaiting calls do for every buyer on the waitlist of a sale on one partition, until it returns false. A buyer may
// come twice. Errors: KindUnavailable.
func EachWaiting(
	ctx context.Context, rdb redis.Cmdable, keys pipeline.Keys, at pipeline.SalePartition, do func(userID string) bool,
) error {
	return eachField(ctx, rdb, keys.Waiting(at.Partition, at.SaleID), func(userID, _ string) bool { return do(userID) })
}

func eachField(ctx context.Context, rdb redis.Cmdable, key string, do func(field, value string) bool) error {
	var cursor uint64
	for {
		page, next, err := rdb.HScan(ctx, key, cursor, "", PageSize).Result()
		if err != nil {
			return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not list the buyers of a sale")
		}
		for i := 0; i+1 < len(page); i += 2 {
			if !do(page[i], page[i+1]) {
				return nil
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// EachEvent calls do for every event of a partition's stream, oldest first, page by page, until it returns false.
// Entries that can't be decoded are left out: they belong to no sale. Errors: KindUnavailable.
func EachEvent(
	ctx context.Context, rdb redis.Cmdable, keys pipeline.Keys, p pipeline.Partition, do func(pipeline.Event) bool,
) error {
	from := "-"
	for {
		page, err := readPage(ctx, rdb, keys.Orders(p), from)
		if err != nil {
			return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not list the order events")
		}
		for _, m := range page {
			if e, err := pipeline.DecodeEvent(p, m.ID, m.Values); err == nil && !do(e) {
				return nil
			}
		}
		if len(page) < PageSize {
			return nil
		}
		from = "(" + page[len(page)-1].ID
	}
}

func readPage(ctx context.Context, rdb redis.Cmdable, stream, from string) ([]redis.XMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	return rdb.XRangeN(ctx, stream, from, "+", PageSize).Result()
}
