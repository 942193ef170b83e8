package ordernumber

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
)

// NumberEpoch is where order numbers start to count seconds: 31 bits reach the year 2094.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	// numberBlock is how many numbers one INCRBY leases. At 100k requests/s that is some 25 extra calls a second.
	blockSize = 4096
	// numberKeyTTL outlives the day of a counter, whatever the hosts' clocks say.
	numberKeyTTL = 48 * time.Hour
)

// Numbers hands out order numbers: sign bit 0, 31 bits of seconds since NumberEpoch, the low 32 bits of a daily counter that
// Redis keeps and that every API process leases in blocks. Numbers are unique, whatever Redis has lost meanwhile (but for
// the chance that lua/lease.lua tells of); they are not dense, and only roughly ordered between processes within a second.
type Generator struct {
	rdb  redis.UniversalClient
	keys pipeline.Keys
	now  func() time.Time

	mu        sync.Mutex // protects the lease below, and lets one caller at a time renew it
	day       string
	next, end int64
}

// NewNumbers returns a source of order numbers that has leased nothing yet.
func NewGenerator(rdb redis.UniversalClient, keys pipeline.Keys) *Generator {
	return &Generator{rdb: rdb, keys: keys, now: time.Now}
}

// Take fills into with fresh numbers. It costs one round trip per numberBlock numbers; a failed one loses no number.
func (n *Generator) Take(ctx context.Context, into []int64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range into {
		now := n.now().UTC()
		if day := now.Format("20060102"); n.next >= n.end || day != n.day {
			if err := n.lease(ctx, day); err != nil {
				return err
			}
		}
		into[i] = int64(now.Sub(Epoch)/time.Second)<<32 | n.next&math.MaxUint32
		n.next++
	}
	return nil
}

func (n *Generator) lease(ctx context.Context, day string) error {
	first, err := lua.Lease(ctx, n.rdb, n.keys.OrderCounter(day), n.keys.OrderCounterIssuer(day), blockSize, numberKeyTTL)
	if err != nil {
		return err
	}
	n.day, n.next, n.end = day, first, first+blockSize
	return nil
}
