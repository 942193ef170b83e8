package db_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"sluice/pipeline"
	"sluice/webhook"
)

// BenchmarkOutbox measures what the triggers of events cost the persist statement, against the same statement without
// them: with no endpoint, with an endpoint and orders that await payment (which are no events), and with an endpoint
// and orders that are confirmed at once (each of which is one). The four take turns, each in a database of its own. One
// iteration is one batch of 500 each.
func BenchmarkOutbox(b *testing.B) {
	sides := []struct {
		name  string
		setup string
		free  bool
		write func(context.Context, []pipeline.Event) error
		spent []time.Duration
	}{
		{name: "without", setup: `
			alter table orders disable trigger orders_announce_new;
			alter table sales disable trigger sales_announce_sold_out`},
		{name: "no-endpoint", setup: `select 1`},
		{name: "awaiting", setup: `insert into endpoints (url, secret, cursor) values ('u', 's', 0)`},
		{name: "confirmed", setup: `insert into endpoints (url, secret, cursor) values ('u', 's', 0)`, free: true},
	}
	for i := range sides {
		store, raw := benchStores(b)
		if _, err := raw.Exec(b.Context(), sides[i].setup); err != nil {
			b.Fatal(err)
		}
		sale := newSale("drop", pipeline.MaxStock)
		if sides[i].free {
			sale.PaymentWindow = 0
		}
		if err := store.CreateSale(b.Context(), sale); err != nil {
			b.Fatal(err)
		}
		sides[i].write = func(ctx context.Context, batch []pipeline.Event) error {
			_, err := store.PersistOrders(ctx, 1, batch)
			return err
		}
	}
	var sequence atomic.Int64
	for round := 0; b.Loop(); round++ {
		for i := range sides {
			side := &sides[(i+round)%len(sides)] // none always goes first
			side.spent = append(side.spent, benchmarkRound(b, 1, &sequence, side.write))
		}
	}
	for _, side := range sides[1:] {
		b.ReportMetric(median(sides[0].spent).Seconds()/median(side.spent).Seconds(), side.name+"-ratio")
	}
	b.ReportMetric(benchBatch/median(sides[0].spent).Seconds(), "rows/s")
	b.ReportMetric(0, "ns/op") // of all sides together: means nothing
}

// median, because one batch that a busy machine delayed must not decide.
func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkSequenceEvents makes events readable, and reads them page by page as a delivery does.
func BenchmarkSequenceEvents(b *testing.B) {
	const n = 10_000
	store, raw := benchStores(b)
	var given, read time.Duration
	cursor := int64(0)
	for b.Loop() {
		_, err := raw.Exec(b.Context(), `
			insert into outbox (type, sale_id, data) select 't', 'drop', '{"a": 1}' from generate_series(1, $1)`, n)
		if err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		for left := 1; left > 0; {
			if left, err = store.SequenceEvents(b.Context(), 1000); err != nil {
				b.Fatal(err)
			}
		}
		given += time.Since(began)
		began = time.Now()
		for {
			events, err := store.NextEvents(b.Context(), cursor, []string{webhook.TypeOrderPaid}, 50)
			if err != nil {
				b.Fatal(err)
			}
			if len(events) == 0 {
				break
			}
			cursor = events[len(events)-1].Position
		}
		read += time.Since(began)
	}
	b.ReportMetric(float64(n*b.N)/given.Seconds(), "sequenced/s")
	b.ReportMetric(float64(n*b.N)/read.Seconds(), "read/s")
	b.ReportMetric(0, "ns/op")
}
