package lock

import (
	"context"
	_ "embed" // the script is part of the program
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed renew.lua
var renewSource string

var renewScript = newScript("renew", renewSource)

// MaxRenewals bounds the holds of one Renew. The server answers no other client meanwhile: 500 take it about one
// millisecond.
const MaxRenewals = 500

// Renewal is a hold whose lease is to last for TTL from now on, in whole milliseconds. A share has no Owner.
type Renewal struct {
	Key, Owner, Hold string
	TTL              time.Duration
}

// Renew makes the leases of 1 to MaxRenewals holds longer, all of whose keys lie in one hash slot; ours[i] is false
// when the lease of holds[i] had ended. No lease becomes shorter.
func Renew(ctx context.Context, rdb redis.Scripter, holds []Renewal) (ours []bool, err error) {
	defer named("renew", &err)
	if len(holds) < 1 || len(holds) > MaxRenewals {
		return nil, fmt.Errorf("a batch of %d: use 1 to %d", len(holds), MaxRenewals)
	}
	keys, args := make([]string, len(holds)), make([]any, 0, 3*len(holds))
	for i := range holds {
		h := &holds[i]
		if h.Hold == "" || h.TTL < time.Millisecond {
			return nil, fmt.Errorf("hold %q, ttl %s: use a word and at least 1ms", h.Hold, h.TTL)
		}
		keys[i] = h.Key
		args = append(args, h.Owner, h.Hold, h.TTL.Milliseconds())
	}
	reply, err := renewScript.Run(ctx, rdb, keys, args...).Result()
	if err != nil {
		return nil, err
	}
	return flagsReply(reply, len(holds))
}

// flagsReply reads an array of n ones and zeros.
func flagsReply(reply any, n int) ([]bool, error) {
	items, ok := reply.([]any)
	if !ok || len(items) != n {
		return nil, unknownReply(reply)
	}
	flags := make([]bool, n)
	for i, item := range items {
		if item != int64(0) && item != int64(1) {
			return nil, unknownReply(reply)
		}
		flags[i] = item == int64(1)
	}
	return flags, nil
}
