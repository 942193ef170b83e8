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
// those numbers to no other caller; a process that has lost something, or replaced this one, begins elsewhere, at a
// multiple of the block. The issuer names the server process and its history. After an error the block may be lost,
// which wastes it. The time to live is that of the counter, in whole milliseconds, from its first use.
func Lease(
	ctx context.Context, rdb redis.Scripter, counterKey, issuerKey string, block int64, ttl time.Duration,
) (first int64, issuer string, err error) {
	defer named("lease", &err)
	if block < 1 {
		return 0, "", fmt.Errorf("block of %d: use at least 1", block)
	}
	start := int64(rand.Uint32()) / block * block
	reply, err := leaseScript.Run(ctx, rdb, []string{counterKey, issuerKey}, start, block, ttl.Milliseconds()).Slice()
	if err != nil {
		return 0, "", err
	}
	if len(reply) != 2 {
		return 0, "", fmt.Errorf("unknown reply: want a counter and its issuer, got %.200v", reply)
	}
	end, err := replyInteger(reply[0])
	if err != nil {
		return 0, "", err
	}
	issuer, ok := reply[1].(string)
	if end < block || !ok {
		return 0, "", fmt.Errorf("unknown reply: %.200v, after a block of %d", reply, block)
	}
	return end - block, issuer, nil
}
