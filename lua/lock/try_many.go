package lock

import (
	"context"
	_ "embed" // the script is part of the program
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed try_many.lua
var tryManySource string

var tryManyScript = newScript("try_many", tryManySource)

// MaxBatch bounds the keys of one TryMany or UnlockMany. The server answers no other client meanwhile: 1000 locks take
// it about one millisecond.
const MaxBatch = 1000

const tryManyBestEffort, tryManyAll = 0, 1

// TryMany takes those of 1 to MaxBatch locks that are free, under a token that must be unique to the call; held[i]
// reports whether keys[i] is taken. With all, it takes every one of them or none. The TTL counts in whole milliseconds.
// All keys lie in one hash slot.
func TryMany(
	ctx context.Context, rdb redis.Scripter, keys []string, token string, ttl time.Duration, all bool,
) (held []bool, err error) {
	defer named("try_many", &err)
	if err := checkBatch(keys, token); err != nil {
		return nil, err
	}
	if ttl < time.Millisecond {
		return nil, fmt.Errorf("ttl %s: use at least 1ms", ttl)
	}
	mode := tryManyBestEffort
	if all {
		mode = tryManyAll
	}
	reply, err := tryManyScript.Run(ctx, rdb, keys, token, ttl.Milliseconds(), mode).Result()
	if err != nil {
		return nil, err
	}
	return heldReply(reply, len(keys))
}

// heldReply reads which of n locks are busy, and returns which are not.
func heldReply(reply any, n int) ([]bool, error) {
	busy, ok := reply.([]any)
	if !ok {
		return nil, unknownReply(reply)
	}
	held := slices.Repeat([]bool{true}, n)
	for _, one := range busy {
		place, ok := one.(int64)
		if !ok || place < 1 || place > int64(n) || !held[place-1] {
			return nil, unknownReply(reply)
		}
		held[place-1] = false
	}
	return held, nil
}

func checkBatch(keys []string, token string) error {
	switch {
	case len(keys) < 1 || len(keys) > MaxBatch:
		return fmt.Errorf("a batch of %d: use 1 to %d", len(keys), MaxBatch)
	case token == "":
		return fmt.Errorf("the token is empty")
	default:
		return nil
	}
}
