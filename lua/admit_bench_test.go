package lua_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/pipeline"
)

// BenchmarkAdmit measures requests that are all accepted, by distinct buyers, with idempotency hashes, and requests
// that are all refused as sold out. One goroutine per processor sends them; the time is per request, not per batch.
// Entries are not settled, so memory grows with b.N. Nothing is written to disk: this is the script's cost, not the
// disk's.
func BenchmarkAdmit(b *testing.B) {
	server := testkit.PrivateRedis(b, "appendonly no")
	for _, stock := range []int64{1 << 31, 0} {
		outcome := map[bool]string{true: "accepted", false: "sold-out"}[stock > 0]
		for _, size := range []int{1, 32, lua.MaxAdmitBatch} {
			b.Run(fmt.Sprintf("%s/batch=%d", outcome, size), func(b *testing.B) {
				benchmarkAdmit(b, server.URL(), stock, size)
			})
		}
	}
}

func benchmarkAdmit(b *testing.B, url string, stock int64, size int) {
	rdb := testkit.Client(b, url)
	ctx := context.Background()
	if err := rdb.FlushAll(ctx).Err(); err != nil {
		b.Fatal(err)
	}
	keys := saleKeysOf(pipeline.Keys{Prefix: "bench"})
	for _, step := range []verifyStep{lua.BeginVerify, lua.FinishVerify} {
		if _, err := step(ctx, rdb, verifyKeys(pipeline.Keys{Prefix: "bench"}), "bench"); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := lua.Load(ctx, rdb, keys.Sale, keys.Trusted, lua.SaleFields{
		Stock: stock, Total: stock, OpensMS: 0, ClosesMS: 1 << 48, MaxQuantity: 1, State: "active", Version: 1,
	}); err != nil {
		b.Fatal(err)
	}
	if err := rdb.ConfigResetStat(ctx).Err(); err != nil {
		b.Fatal(err)
	}
	var last atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(8)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		reqs := make([]lua.AdmitRequest, 0, size)
		for pb.Next() {
			n := last.Add(1)
			reqs = append(reqs, lua.AdmitRequest{
				OrderID: uuid.NewString(), Number: 1<<60 + n, UserID: "user-" + strconv.FormatInt(n, 10), Quantity: 1,
				KeyHash: "5f0c1bd8e6a94c27", PayloadHash: "a1b2c3d4e5f60718",
			})
			if len(reqs) < size {
				continue
			}
			if _, err := lua.Admit(ctx, rdb, keys, "bench", plenty, reqs); err != nil {
				b.Error(err)
				return
			}
			reqs = reqs[:0]
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric(scriptMicroseconds(b, rdb)/float64(b.N), "server-µs/op")
}

// scriptMicroseconds is what the server spent in scripts since its statistics were reset. Unlike requests/s it does not
// depend on how many processors client and server share.
func scriptMicroseconds(b *testing.B, rdb *redis.Client) float64 {
	info, err := rdb.Info(context.Background(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	_, line, found := strings.Cut(info, "cmdstat_evalsha:")
	if !found {
		return 0 // the first round of a benchmark is shorter than one batch
	}
	var calls, usec int64
	if _, err := fmt.Sscanf(line, "calls=%d,usec=%d", &calls, &usec); err != nil {
		b.Fatalf("commandstats: %v", err)
	}
	return float64(usec)
}
