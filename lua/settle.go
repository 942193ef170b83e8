package lua

import (
	"context"
	_ "embed" // the script is part of the program
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

//go:embed settle.lua
var settleSource string

var settleScript = newScript("settle", settleSource)

// maxSettleBatch bounds one Settle. The server answers no other client meanwhile: 1000 entries with their locks take it
// about three milliseconds.
const maxSettleBatch = 1000

// SettleItem is a stream entry whose order is committed in Postgres, and the lock under which it was persisted.
type SettleItem struct {
	EntryID string // milliseconds-sequence
	LockKey string // in the hash slot of the stream; empty when there was no lock
	// SaleKey is the order's sale, whose mark becomes Stored: how many rows Postgres had stored of it on this partition,
	// once this order's was among them. Empty: nothing is marked.
	SaleKey string
	Stored  int64
}

// Settle acknowledges and deletes 1 to 1000 entries and frees those of their locks that still have the token, which may
// be empty when no lock is named. It returns how many entries it acknowledged itself: fewer than it was given means
// that others settled them first or that the group was made anew, and is no error. After an error, calling again is
// safe.
func Settle(
	ctx context.Context, rdb redis.Scripter, stream, group, token string, items []SettleItem,
) (acked int64, err error) {
	defer named("settle", &err)
	keys, args, err := settleCall(stream, group, token, items)
	if err != nil {
		return 0, err
	}
	reply, err := settleScript.Run(ctx, rdb, keys, args...).Result()
	if err != nil {
		return 0, err
	}
	return replyInteger(reply)
}

func settleCall(stream, group, token string, items []SettleItem) (keys []string, args []any, err error) {
	if err := checkBatch(len(items), maxSettleBatch); err != nil {
		return nil, nil, err
	}
	marks := marksOf(items)
	keys = append(make([]string, 0, 1+len(marks)+len(items)), stream)
	args = append(make([]any, 0, 3+len(marks)+len(items)), group, token, len(marks))
	for _, m := range marks {
		keys, args = append(keys, m.SaleKey), append(args, m.Stored)
	}
	for i := range items {
		item := &items[i]
		if err := checkEntryID(item.EntryID); err != nil {
			return nil, nil, fmt.Errorf("item %d: %w", i, err)
		}
		args = append(args, &item.EntryID)
		if item.LockKey == "" {
			continue
		}
		if token == "" {
			return nil, nil, fmt.Errorf("item %d: lock %q without a token", i, item.LockKey)
		}
		keys = append(keys, item.LockKey)
	}
	return slices.Clip(keys), args, nil
}

// marksOf returns one item for each sale: the one with the highest count. A batch is of few sales.
func marksOf(items []SettleItem) (marks []SettleItem) {
	for i := range items {
		item := &items[i]
		if item.SaleKey == "" {
			continue
		}
		at := slices.IndexFunc(marks, func(m SettleItem) bool { return m.SaleKey == item.SaleKey })
		if at < 0 {
			marks = append(marks, *item)
		} else if item.Stored > marks[at].Stored {
			marks[at] = *item
		}
	}
	return marks
}
