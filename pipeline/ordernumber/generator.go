package ordernumber

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
)

// Epoch is the instant from which order numbers count seconds: 31 bits reach the year 2094.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	// blockSize is how many numbers one INCRBY leases. At 100k requests/s that is some 25 extra calls a second.
	blockSize = 1 << blockBits
	blockBits = 12
	// counterTTL outlives the day of a counter, even where the hosts' clocks differ.
	counterTTL = 48 * time.Hour
)

// Generator issues order numbers: sign bit 0, 31 bits of seconds since Epoch, and 32 bits from a daily counter that
// Redis keeps and that every api process leases in blocks. Numbers are unique, even if Redis loses the counter (except
// for the small chance that lua/lease.lua states); they are not dense, and not ordered within a second. A buyer who
// compares two of them does not learn how many were issued in between: blocks are veiled, and a block's numbers come in
// a random order.
type Generator struct {
	rdb  redis.UniversalClient
	keys pipeline.Keys
	now  func() time.Time

	mu    sync.Mutex // protects the lease below, and lets one caller at a time renew it
	day   string
	block int64 // veiled: the upper bits of all its numbers
	left  []int // the lower bits that are still to be issued
}

// NewGenerator returns a generator that has leased nothing yet.
func NewGenerator(rdb redis.UniversalClient, keys pipeline.Keys) *Generator {
	return &Generator{rdb: rdb, keys: keys, now: time.Now}
}

// Take fills into with fresh numbers. It costs one round trip per blockSize numbers; a failed one loses no number. Its
// error is that of the Redis client.
func (g *Generator) Take(ctx context.Context, into []int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range into {
		now := g.now().UTC()
		if day := now.Format("20060102"); len(g.left) == 0 || day != g.day {
			if err := g.lease(ctx, day); err != nil {
				return err
			}
		}
		into[i] = int64(now.Sub(Epoch)/time.Second)<<32 | g.block<<blockBits | int64(g.left[0])
		g.left = g.left[1:]
	}
	return nil
}

func (g *Generator) lease(ctx context.Context, day string) error {
	counter, issuedBy := g.keys.OrderCounter(day), g.keys.OrderCounterIssuer(day)
	first, issuer, err := lua.Lease(ctx, g.rdb, counter, issuedBy, blockSize, counterTTL)
	if err != nil {
		return err
	}
	g.day, g.block, g.left = day, int64(veil(issuer, uint32(first>>blockBits))), rand.Perm(blockSize)
	return nil
}
