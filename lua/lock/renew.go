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

var renewScript = redis.NewScript(renewSource)

// MaxRenewals bounds the holds of one Renew. The server answers nobody else meanwhile: 500 take it about one millisecond.
const MaxRenewals = 500

// Renewal is a hold whose lease is to last for TTL from now on, in whole milliseconds. A share has no Owner.
type Renewal struct {
	Key, Owner, Hold string
	TTL              time.Duration
}

// Renew makes the leases of 1 to MaxRenewals holds longer, all of whose keys lie in one hash slot; ours[i] tells about
// holds[i], and is false when its lease had ended. No lease becomes shorter.
func Renew(ctx context.Context, rdb redis.Scripter, holds []Renewal) (ours []bool, err error) {
	if len(holds) < 1 || len(holds) > MaxRenewals {
		return nil, fmt.Errorf("renew: a batch of %d: use 1 to %d", len(holds), MaxRenewals)
	}
	keys, args := make([]string, len(holds)), make([]any, 0, 3*len(holds))
	for i := range holds {
		h := &holds[i]
		if h.Hold == "" || h.TTL < time.Millisecond {
			return nil, fmt.Errorf("renew: hold %q, ttl %s: use a word and at least 1ms", h.Hold, h.TTL)
		}
		keys[i] = h.Key
		args = append(args, h.Owner, h.Hold, h.TTL.Milliseconds())
	}
	reply, err := renewScript.Run(ctx, rdb, keys, args...).Result()
	if err != nil {
		return nil, fmt.Errorf("renew: %w", err)
	}
	return flagsReply("renew", reply, len(holds))
}

// flagsReply reads an array of n ones and zeros.
func flagsReply(script string, reply any, n int) ([]bool, error) {
	items, ok := reply.([]any)
	if !ok || len(items) != n {
		return nil, fmt.Errorf("%s: unknown reply: want an array of %d, got %T %.200v", script, n, reply, reply)
	}
	flags := make([]bool, n)
	for i, item := range items {
		switch item {
		case int64(1):
			flags[i] = true
		case int64(0):
		default:
			return nil, fmt.Errorf("%s: unknown reply: %.200v among flags", script, item)
		}
	}
	return flags, nil
}
