package lua

import (
	"context"
	_ "embed" // the script is part of the program
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed claim.lua
var claimSource string

var claimScript = newScript("claim", claimSource)

// maxClaimBatch bounds one Claim. The server answers no other client meanwhile: 1000 entries take it about two
// milliseconds.
const maxClaimBatch = 1000

// Consumer is a consumer of a group that reads a stream.
type Consumer struct{ Stream, Group, Name string }

// PendingEntry is a pending entry to claim. One with Deliveries is claimed whatever its idle time is, unless it was
// delivered once more since it had so many: its caller has waited by a clock of its own.
type PendingEntry struct {
	ID         string
	Deliveries int64 // 0: its idle time decides
}

// Claim takes over those of 1 to 1000 pending entries that were delivered at least minIdle ago (in whole milliseconds),
// and returns besides which of the entries are lost: pending, but deleted from the stream. Entries that are not pending
// any more are in neither. After an error, calling again is safe, though lost entries that the lost reply named are not
// named again.
func Claim(
	ctx context.Context, rdb redis.Scripter, by Consumer, minIdle time.Duration, entries []PendingEntry,
) (claimed []redis.XMessage, lost []string, err error) {
	defer named("claim", &err)
	if err := checkBatch(len(entries), maxClaimBatch); err != nil {
		return nil, nil, err
	}
	args := make([]any, 0, 3+2*len(entries))
	args = append(args, by.Group, by.Name, minIdle.Milliseconds())
	for i := range entries {
		args = append(args, entries[i].ID, entries[i].Deliveries)
	}
	reply, err := claimScript.Run(ctx, rdb, []string{by.Stream}, args...).Result()
	if err != nil {
		return nil, nil, err
	}
	both, err := replyArray(reply, 2)
	if err != nil {
		return nil, nil, err
	}
	if claimed, err = decodeEntries(both[0]); err != nil {
		return nil, nil, err
	}
	lost, err = replyTexts(both[1])
	return claimed, lost, err
}

// decodeEntries reads stream entries: each is its id and an array of names and values.
func decodeEntries(reply any) ([]redis.XMessage, error) {
	items, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("unknown reply: want entries, got %T", reply)
	}
	entries := make([]redis.XMessage, len(items))
	for i, item := range items {
		pair, err := replyArray(item, 2)
		if err != nil {
			return nil, err
		}
		if entries[i].ID, err = replyText(pair[0]); err != nil {
			return nil, err
		}
		fields, err := replyTexts(pair[1])
		if err != nil || len(fields)%2 != 0 {
			return nil, fmt.Errorf("unknown reply: the fields of entry %s", entries[i].ID)
		}
		entries[i].Values = make(map[string]any, len(fields)/2)
		for at := 0; at < len(fields); at += 2 {
			entries[i].Values[fields[at]] = fields[at+1]
		}
	}
	return entries, nil
}
