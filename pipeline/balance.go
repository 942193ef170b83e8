package pipeline

import (
	"context"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
)

const (
	// balanceEvents bounds the events that are read from a partition's stream for a check: some 3 MB, 20 ms of Redis, in pages
	// of a millisecond. Behind a longer backlog nothing is said about drift.
	balanceEvents = 10_000
	// balanceReleases bounds the releases on their way that a check takes into account.
	balanceReleases = 1000
)

// Balance is what Postgres counts of a sale without reading its orders, all of it at one instant.
type Balance struct {
	Total, Sold, Version int64
	Watermarks           map[Partition]int64 // highest accept persisted
	Unapplied            []LedgerOrder       // releases that are not marked as applied: order, buyer, units, partition
	Known                map[string]bool     // those of the orders asked about that have a row
}

// BalanceSource is where the balance of a sale is read.
type BalanceSource interface {
	Balance(ctx context.Context, saleID string, orderIDs []string, releases int) (Balance, error)
}

// drift is what a check has found: the units left, and the units that are missing (more than 0) or sold twice (less).
type drift struct {
	remaining int64
	units     int64
	exact     bool // else nothing is proved about units
}

// backlog is what the streams hold at one look, read once for all sales.
type backlog struct {
	events map[string][]Event // by sale
	cut    map[Partition]bool // partitions whose stream is longer than balanceEvents
}

// balancer checks the identity of a sale in units without reading its orders and buyers: sales.sold stands for the live orders,
// which an audit adds up. It costs the same for ten orders and for ten million.
type balancer struct {
	rdb   redis.UniversalClient
	keys  Keys
	store BalanceSource
	audit *Auditor // for the counters
}

// readBacklog reads the streams of some partitions.
func (b *balancer) readBacklog(ctx context.Context, partitions []Partition) (backlog, error) {
	found := backlog{map[string][]Event{}, map[Partition]bool{}}
	for _, p := range partitions {
		if err := b.readStream(ctx, p, found); err != nil {
			return found, err
		}
	}
	return found, nil
}

func (b *balancer) readStream(ctx context.Context, p Partition, found backlog) error {
	from := "-"
	for read := 0; read < balanceEvents; {
		call, cancel := context.WithTimeout(ctx, commandTimeout)
		page, err := b.rdb.XRangeN(call, b.keys.Orders(p), from, "+", auditScanCount).Result()
		cancel()
		if err != nil {
			return Wrap(KindUnavailable, err, "Redis did not list the order events")
		}
		for _, m := range page {
			if e, err := DecodeEvent(p, m.ID, m.Values); err == nil {
				found.events[e.SaleID] = append(found.events[e.SaleID], e)
			}
		}
		if len(page) < auditScanCount {
			return nil
		}
		read += len(page)
		from = "(" + page[len(page)-1].ID
	}
	found.cut[p] = true
	return nil
}

// check compares a sale's counters, which were read first, with the streams, which were read next, and with Postgres, which is
// read last: in that order nothing that is on its way is missed, and what is seen twice is known by its order id.
//
// What was accepted after the counters were read is left out: in the stream by its sequence. In Postgres it would be in sold
// already; the watermark tells, and then nothing is proved. A stream hands over in its order, so that with a backlog the
// watermark stays behind, and without one all three are read faster than an order gets through.
func (b *balancer) check(ctx context.Context, sale *Sale, before partitionCounters, waiting backlog) (drift, error) {
	redis := before.sum()
	found := drift{remaining: redis.stock}
	for p := range before {
		if waiting.cut[p] {
			return found, nil
		}
	}
	var events []Event
	var ids []string
	for _, e := range waiting.events[sale.ID] {
		if was, ours := before[e.Partition]; ours && e.Sequence <= was.accepted {
			events, ids = append(events, e), append(ids, e.OrderID)
		}
	}
	books, err := b.store.Balance(ctx, sale.ID, ids, balanceReleases+1)
	if err != nil {
		return found, err
	}
	for p, was := range before {
		if books.Watermarks[p] > was.accepted || books.Version != was.version || len(books.Unapplied) > balanceReleases {
			return found, nil
		}
	}
	releasing, err := b.releasing(ctx, sale, books.Unapplied)
	if err != nil {
		return found, err
	}
	after, err := b.audit.counters(ctx, sale)
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
	found.units = books.Total - redis.stock - books.Sold - inFlight - releasing
	found.exact = before.onlyAccepts(after)
	return found, nil
}

// releasing are the units of releases that Redis has not seen: those whose slot still names the order.
func (b *balancer) releasing(ctx context.Context, sale *Sale, unapplied []LedgerOrder) (units int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	users := map[Partition][]string{}
	orders := map[Partition][]LedgerOrder{}
	seen := map[string]bool{} // an order that was admitted twice owes two releases, and has one slot
	for _, o := range unapplied {
		if seen[o.OrderID] {
			continue
		}
		seen[o.OrderID] = true
		users[o.Partition], orders[o.Partition] = append(users[o.Partition], o.UserID), append(orders[o.Partition], o)
	}
	for p, of := range users {
		slots, err := b.rdb.HMGet(ctx, b.keys.Buyers(p, sale.ID), of...).Result()
		if err != nil {
			return 0, Wrap(KindUnavailable, err, "Redis did not tell about the buyers' slots")
		}
		for i, o := range orders[p] {
			text, _ := slots[i].(string)
			if slot, err := lua.ParseSlot(text); err == nil && slot.OrderID == o.OrderID {
				units += int64(o.Quantity)
			}
		}
	}
	return units, nil
}
