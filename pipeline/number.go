package pipeline

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// NumberEpoch is where order numbers start to count seconds: 31 bits reach the year 2094.
var NumberEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	// numberBlock is how many numbers one INCRBY leases. At 100k requests/s that is some 25 extra calls a second.
	numberBlock = 4096
	// numberKeyTTL outlives the day of a counter, whatever the hosts' clocks say.
	numberKeyTTL = 48 * time.Hour
	// numberSeedPerMS seeds a new day's counter with the time of day, so that a counter that Redis lost goes on above
	// every number it gave before, as long as fewer than 40 orders per millisecond were numbered. A whole day of it
	// (3.5e9) leaves room below 2^32.
	numberSeedPerMS = 40
)

// Numbers hands out order numbers: sign bit 0, 31 bits of seconds since NumberEpoch, 32 bits of a daily counter that
// Redis keeps and that every API process leases in blocks. Numbers are unique; they are not dense, and only roughly
// ordered between processes.
type Numbers struct {
	rdb  redis.UniversalClient
	keys Keys
	now  func() time.Time

	mu        sync.Mutex // protects the lease below, and lets one caller at a time renew it
	day       string
	next, end int64
}

// NewNumbers returns a source of order numbers that has leased nothing yet.
func NewNumbers(rdb redis.UniversalClient, keys Keys) *Numbers {
	return &Numbers{rdb: rdb, keys: keys, now: time.Now}
}

// Take fills into with fresh numbers. It costs one round trip per numberBlock numbers; a failed one loses no number.
func (n *Numbers) Take(ctx context.Context, into []int64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range into {
		now := n.now().UTC()
		if day := now.Format("20060102"); n.next >= n.end || day != n.day {
			if err := n.lease(ctx, now, day); err != nil {
				return err
			}
		}
		into[i] = int64(now.Sub(NumberEpoch)/time.Second)<<32 | n.next
		n.next++
	}
	return nil
}

func (n *Numbers) lease(ctx context.Context, now time.Time, day string) error {
	key := n.keys.OrderCounter(day)
	seed := now.Sub(now.Truncate(24*time.Hour)).Milliseconds() * numberSeedPerMS
	pipe := n.rdb.Pipeline()
	pipe.SetNX(ctx, key, seed, numberKeyTTL)
	last := pipe.IncrBy(ctx, key, numberBlock)
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	if last.Val() >= 1<<32 {
		return Errorf(KindOverloaded, "the order numbers of %s are used up", day)
	}
	n.day, n.next, n.end = day, last.Val()-numberBlock, last.Val()
	return nil
}
