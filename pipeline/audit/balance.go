package audit

import (
	"context"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/retry"
)

const (
	// MaxBacklogEvents bounds the events that are read from a partition's stream for a check: some 3 MB and 20 ms of
	// Redis, in pages of a millisecond. With a longer backlog nothing is proved about drift.
	MaxBacklogEvents = 10_000
	// balanceReleases bounds the releases on their way that a check takes into account.
	balanceReleases = 1000
)

// BalanceSource is where the balance of a sale is read.
type BalanceSource interface {
	// Balance reads what Postgres has of a sale at one instant: which of some orders have a row, and at most so many
	// releases that Postgres has not noted as applied in Redis.
	Balance(ctx context.Context, saleID string, orderIDs []string, releases int) (pipeline.Balance, error)
}

// Drift is the result of a check: the units left, and the units that are missing (more than 0) or too many (less than
// 0).
type Drift struct {
	Remaining int64
	Units     int64
	Exact     bool // else Units proves nothing

	// Where the other units are: in live orders, accepted and not stored yet, on their way back into stock, and taken from
	// sale with the orders that were returned. They are 0 where the check could not look at them.
	Sold, InFlight, Releasing, Withdrawn int64

	Moving int64 // between two partitions of the sale
}

// Backlog is what was in the streams at one look, read once for all sales.
type Backlog struct {
	events map[string][]pipeline.Event // by sale
	cut    map[pipeline.Partition]bool // partitions whose stream is longer than MaxBacklogEvents
}

// Balancer checks that a sale's units add up, without reading its orders and buyers: sales.sold stands for the live
// orders, which an audit adds up. A check costs the same for ten orders and for ten million.
type Balancer struct {
	rdb     redis.UniversalClient
	keys    pipeline.Keys
	store   BalanceSource
	auditor *Auditor // for the counters
}

// NewBalancer returns a Balancer over both stores.
func NewBalancer(rdb redis.UniversalClient, keys pipeline.Keys, store BalanceSource, auditor *Auditor) *Balancer {
	return &Balancer{rdb: rdb, keys: keys, store: store, auditor: auditor}
}

// ReadBacklog reads the streams of some partitions.
func (b *Balancer) ReadBacklog(ctx context.Context, partitions []pipeline.Partition) (Backlog, error) {
	found := Backlog{map[string][]pipeline.Event{}, map[pipeline.Partition]bool{}}
	for _, p := range partitions {
		if err := b.readStream(ctx, p, found); err != nil {
			return found, err
		}
	}
	return found, nil
}

func (b *Balancer) readStream(ctx context.Context, p pipeline.Partition, found Backlog) error {
	read := 0
	return redisstore.EachEvent(ctx, b.rdb, b.keys, p, func(e pipeline.Event) bool {
		if read++; read > MaxBacklogEvents {
			found.cut[p] = true
			return false
		}
		found.events[e.SaleID] = append(found.events[e.SaleID], e)
		return true
	})
}

// Check compares a sale's counters, which were read first, with the streams, which were read next, and with Postgres,
// which is read last: in that order nothing that is on its way is missed, and what is seen twice is recognized by its
// order id.
//
// What was accepted after the counters were read is left out. In the stream it is recognized by its sequence. In
// Postgres it would already be part of sold; the watermark shows that, and then nothing is proved. That is rare: a
// stream delivers in order, so that with a backlog the watermark lags behind, and without one all three are read faster
// than an order is persisted.
func (b *Balancer) Check(
	ctx context.Context,
	sale *pipeline.Sale,
	before PartitionCounters,
	backlog Backlog,
) (Drift, error) {
	redis := before.sum()
	found := Drift{Remaining: redis.Stock}
	for p := range before {
		if backlog.cut[p] {
			return found, nil
		}
	}
	var events []pipeline.Event
	var ids []string
	for _, e := range backlog.events[sale.ID] {
		if was, counted := before[e.Partition]; counted && e.Sequence <= was.Accepted {
			events, ids = append(events, e), append(ids, e.OrderID)
		}
	}
	books, err := b.store.Balance(ctx, sale.ID, ids, balanceReleases+1)
	if err != nil {
		return found, err
	}
	for p, was := range before {
		if books.Watermarks[p] > was.Accepted || books.Version != was.Version || len(books.Unapplied) > balanceReleases {
			return found, nil
		}
	}
	releasing, err := b.releasing(ctx, sale, books.Unapplied)
	if err != nil {
		return found, err
	}
	after, err := b.auditor.Counters(ctx, sale)
	if err != nil {
		return found, err
	}
	seen := map[string]bool{}
	var inFlight int64
	for _, e := range events {
		if !books.Known[e.OrderID] && !seen[e.OrderID] {
			seen[e.OrderID] = true
			inFlight += int64(e.Quantity)
		}
	}
	found.Sold, found.InFlight, found.Releasing, found.Withdrawn = books.Sold, inFlight, releasing, books.Withdrawn
	found.Moving = redis.MovedOut - redis.MovedIn
	found.Units = books.Total - redis.Stock - found.Moving - books.Sold - inFlight - releasing - books.Withdrawn
	found.Exact = before.onlyAccepts(after)
	return found, nil
}

// releasing returns the units of releases that Redis has not applied: those whose slot still names the order.
func (b *Balancer) releasing(
	ctx context.Context, sale *pipeline.Sale, unapplied []pipeline.LedgerOrder,
) (units int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	users := map[pipeline.Partition][]string{}
	orders := map[pipeline.Partition][]pipeline.LedgerOrder{}
	seen := map[string]bool{} // an order that was admitted twice owes two releases, and has one slot
	for _, o := range unapplied {
		if seen[o.OrderID] {
			continue
		}
		seen[o.OrderID] = true
		users[o.Partition], orders[o.Partition] = append(users[o.Partition], o.UserID), append(orders[o.Partition], o)
	}
	for p, of := range users {
		at := pipeline.SalePartition{SaleID: sale.ID, Partition: p}
		slots, err := redisstore.ReadSlots(ctx, b.rdb, b.keys, at, of)
		if err != nil {
			return 0, err
		}
		for i, o := range orders[p] {
			if slots[i].OrderID == o.OrderID {
				units += int64(o.Quantity)
			}
		}
	}
	return units, nil
}
