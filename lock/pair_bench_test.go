package lock_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/lock"
)

// BenchmarkPair locks and unlocks from sixteen goroutines, each with its own key; bench/ compares it with other locks.
func BenchmarkPair(b *testing.B) {
	options, err := redis.ParseURL(testkit.PrivateRedis(b, "appendonly no").URL())
	if err != nil {
		b.Fatal(err)
	}
	rdb := redis.NewClient(options)
	defer func() { _ = rdb.Close() }()
	l := lock.New(rdb)
	defer func() { _ = l.Close() }()
	var last atomic.Int64
	b.SetParallelism(8)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		m := l.Mutex(fmt.Sprintf("{pair}:%d", last.Add(1)))
		for pb.Next() {
			h, err := m.Lock(b.Context())
			if err == nil {
				err = h.Unlock(b.Context())
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
}
