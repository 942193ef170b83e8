package lua

import (
	"context"
	_ "embed" // the script is part of the program
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lease.lua
var leaseSource string

var leaseScript = newScript("lease", leaseSource)

// Lease takes a block of a counter, of which the low 32 bits are used: first, first+1, … This server process issues
// those numbers to no other caller; a process that has lost something, or replaced this one, begins elsewhere. After an
// error the block may be lost, which wastes it. The time to live is that of the counter, in whole milliseconds, from
// its first use.
func Lease(
	ctx context.Context, rdb redis.Scripter, counterKey, issuerKey string, block int64, ttl time.Duration,
) (first int64, err error) {
	defer named("lease", &err)
	if block < 1 {
		return 0, fmt.Errorf("block of %d: use at least 1", block)
	}
	keys := []string{counterKey, issuerKey}
	reply, err := leaseScript.Run(ctx, rdb, keys, rand.Uint32(), block, ttl.Milliseconds()).Result()
	if err != nil {
		return 0, err
	}
	end, err := replyInteger(reply)
	if err != nil {
		return 0, err
	}
	if end < block {
		return 0, fmt.Errorf("unknown reply: %d, after a block of %d", end, block)
	}
	return end - block, nil
}
