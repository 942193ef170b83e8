package db_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"sluice/db"
	"sluice/internal/testkit"
	"sluice/pipeline"
)

const benchBatch = 500

// BenchmarkPersistOrders measures PersistOrders against a bare insert … select unnest into a table of the same shape
// (columns, checks and indexes), without idempotency, join, counters or watermarks. Both take turns in the same run, so
// that the ratio holds whatever else the machine does. One iteration is one batch of 500 per writer and side.
func BenchmarkPersistOrders(b *testing.B) {
	for _, writers := range []int{1, 2} {
		b.Run(fmt.Sprint(writers, "-writers"), func(b *testing.B) { benchmarkPersist(b, writers) })
	}
}

func benchmarkPersist(b *testing.B, writers int) {
	store, raw := benchStores(b)
	if err := store.CreateSale(b.Context(), newSale("drop", pipeline.MaxStock)); err != nil {
		b.Fatal(err)
	}
	if _, err := raw.Exec(b.Context(), `create table bare (like orders including all)`); err != nil {
		b.Fatal(err)
	}
	persist := func(ctx context.Context, batch []pipeline.Event) error {
		_, err := store.PersistOrders(ctx, 1, batch)
		return err
	}
	bare := func(ctx context.Context, batch []pipeline.Event) error { return insertBare(ctx, raw, batch) }

	var sequence atomic.Int64
	var spent [2]time.Duration
	sides := []func(context.Context, []pipeline.Event) error{persist, bare}
	for round := 0; b.Loop(); round++ {
		for i := range sides {
			side := (i + round) % 2 // neither always goes first
			spent[side] += benchmarkRound(b, writers, &sequence, sides[side])
		}
	}
	rows := float64(b.N * writers * benchBatch)
	b.ReportMetric(rows/spent[0].Seconds(), "persisted-rows/s")
	b.ReportMetric(rows/spent[1].Seconds(), "bare-rows/s")
	b.ReportMetric(spent[1].Seconds()/spent[0].Seconds(), "ratio")
	b.ReportMetric(0, "ns/op") // of both sides together: means nothing
}

// benchmarkRound lets each writer write one batch, and returns how long they took together.
func benchmarkRound(
	b *testing.B, writers int, sequence *atomic.Int64, write func(context.Context, []pipeline.Event) error,
) time.Duration {
	batches := make([][]pipeline.Event, writers)
	for i := range batches {
		for range benchBatch {
			next := sequence.Add(1)
			batches[i] = append(batches[i], event("drop", fmt.Sprint("buyer-", next), 1, next))
		}
	}
	var group sync.WaitGroup
	began := time.Now()
	for _, batch := range batches {
		group.Go(func() {
			if err := write(b.Context(), batch); err != nil {
				b.Error(err)
			}
		})
	}
	group.Wait()
	return time.Since(began)
}

func insertBare(ctx context.Context, pool *pgxpool.Pool, batch []pipeline.Event) error {
	var sales, orders, users []string
	var numbers, quantities, partitions, sequences []int64
	var accepted, payBy []time.Time
	for _, e := range batch {
		sales, orders, users = append(sales, e.SaleID), append(orders, e.OrderID), append(users, e.UserID)
		numbers, sequences = append(numbers, e.Number), append(sequences, e.Sequence)
		quantities, partitions = append(quantities, int64(e.Quantity)), append(partitions, int64(e.Partition))
		accepted, payBy = append(accepted, e.AcceptedAt), append(payBy, e.AcceptedAt.Add(time.Hour))
	}
	_, err := pool.Exec(ctx, `
		insert into bare (sale_id, id, number, user_id, quantity, partition, sequence, accepted_at, status, pay_by)
		select s, o::uuid, n, u, q, p, k, a, 'awaiting_payment', b
		from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[],
			$8::timestamptz[], $9::timestamptz[]) as i (s, o, n, u, q, p, k, a, b)`,
		sales, orders, numbers, users, quantities, partitions, sequences, accepted, payBy)
	return err
}

// BenchmarkLedger reads the ledger of a sale with 100,000 live orders.
func BenchmarkLedger(b *testing.B) {
	const n = 100_000
	store, err := db.Open(b.Context(), testkit.Database(b), db.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	if err := store.CreateSale(b.Context(), newSale("drop", n)); err != nil {
		b.Fatal(err)
	}
	for batch := range slices.Chunk(events("drop", n), pipeline.MaxPersistBatch) {
		if _, err := store.PersistOrders(b.Context(), 1, batch); err != nil {
			b.Fatal(err)
		}
	}
	inFlight := slices.Values([]string{uuid.NewString()})
	b.ReportAllocs()
	for b.Loop() {
		rows := 0
		count := func(pipeline.LedgerOrder) error { rows++; return nil }
		_, err := store.Ledger(b.Context(), "drop", inFlight, nil, count, nil)
		if err != nil || rows != n {
			b.Fatalf("got %d orders, %v, want %d", rows, err, n)
		}
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "orders/s")
}

// BenchmarkPersistManySales measures PersistOrders with batches of 500 orders of 100 sales against batches of one sale,
// in turns. One iteration is one batch of each.
func BenchmarkPersistManySales(b *testing.B) {
	const many = 100
	store, _ := benchStores(b)
	for i := range many {
		if err := store.CreateSale(b.Context(), newSale(fmt.Sprint("drop-", i), pipeline.MaxStock)); err != nil {
			b.Fatal(err)
		}
	}
	var sequence int64
	var spent [2]time.Duration
	for round := 0; b.Loop(); round++ {
		for i := range spent {
			side := (i + round) % len(spent)
			var batch []pipeline.Event
			for range benchBatch {
				sequence++
				sale := "drop-0"
				if side == 1 {
					sale = fmt.Sprint("drop-", sequence%many)
				}
				batch = append(batch, event(sale, fmt.Sprint("buyer-", sequence), 1, sequence))
			}
			began := time.Now()
			if _, err := store.PersistOrders(b.Context(), 1, batch); err != nil {
				b.Fatal(err)
			}
			spent[side] += time.Since(began)
		}
	}
	b.ReportMetric(float64(b.N*benchBatch)/spent[0].Seconds(), "rows-of-1-sale/s")
	b.ReportMetric(float64(b.N*benchBatch)/spent[1].Seconds(), "rows-of-100-sales/s")
	b.ReportMetric(spent[0].Seconds()/spent[1].Seconds(), "ratio")
	b.ReportMetric(0, "ns/op") // of both together: means nothing
}
