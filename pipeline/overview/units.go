package overview

import (
	"context"
	"sync"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/audit"
)

// Units are where the units of a sale are. Free, InFlight, OnTheMove and Drift are of this moment; Paid, Awaiting and
// Confirmed are of AddedUp, because all orders of the sale are read for them.
type Units struct {
	Total     int64
	Free      int64 // left in Redis
	Paid      int64 // in orders that are paid
	Awaiting  int64 // in orders that await payment
	Confirmed int64 // in orders that need no payment
	InFlight  int64 // accepted, and not in Postgres yet
	OnTheMove int64 // on their way back into stock, or from one partition to another
	Withdrawn int64 // of returned orders, and not put on sale again
	Drift     int64 // missing (more than 0), or too many, so that they could be sold twice
	Accepted  int64 // orders accepted so far
	Waiting   int64 // entries on the waitlist
	// Exact says that nothing moved during the look; else InFlight and Drift prove nothing.
	Exact   bool
	AddedUp time.Time // zero: the orders were too many to be added up in time
}

const (
	// unitsShare bounds the time spent on adding up the orders of a sale to a tenth, so that a big one is added up more
	// rarely.
	unitsShare = 10
	// unitsEvery is how often those of a small sale are.
	unitsEvery = time.Second
	// unitsTimeout bounds it: some ten million orders.
	unitsTimeout = 5 * time.Second
	// keptUnits bounds the memory of sales that were looked at.
	keptUnits = 100
)

type unitsMemory struct {
	mu    sync.Mutex // protects known
	known map[string]*unitsOfSale
}

// unitsOfSale are the units of a sale's orders by status, as they were read last.
type unitsOfSale struct {
	mu       sync.Mutex // protects the rest; held while they are read, so that those who wait share it
	byStatus map[pipeline.OrderStatus]int64
	at, next time.Time
}

func (m *unitsMemory) of(saleID string) *unitsOfSale {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.known[saleID]
	if one == nil {
		if len(m.known) >= keptUnits {
			clear(m.known) // they are read again
		}
		one = &unitsOfSale{}
		m.known[saleID] = one
	}
	return one
}

// Units looks where the units of a sale are. Errors: KindUnavailable; KindNotLoaded, where Redis does not have the
// sale.
func (r *Reader) Units(ctx context.Context, sale *pipeline.Sale) (Units, error) {
	counters, err := r.auditor.Counters(ctx, sale)
	if err != nil {
		return Units{}, err
	}
	backlog, err := r.balancer.ReadBacklog(ctx, sale.Partitions)
	if err != nil {
		return Units{}, err
	}
	drift, err := r.balancer.Check(ctx, sale, counters, backlog)
	if err != nil {
		return Units{}, err
	}
	u := unitsOf(sale, drift)
	for _, share := range counters {
		u.Accepted, u.Waiting = u.Accepted+share.Accepted, u.Waiting+share.Waiting
	}
	byStatus, at := r.byStatus(ctx, sale.ID)
	u.AddedUp = at
	u.Paid, u.Awaiting = byStatus[pipeline.StatusPaid], byStatus[pipeline.StatusAwaitingPayment]
	u.Confirmed = byStatus[pipeline.StatusConfirmed]
	return u, nil
}

func unitsOf(sale *pipeline.Sale, d audit.Drift) Units {
	u := Units{Total: sale.Total, Free: d.Remaining, Exact: d.Exact}
	if d.Exact {
		u.InFlight, u.OnTheMove, u.Withdrawn, u.Drift = d.InFlight, d.Releasing+d.Moving, d.Withdrawn, d.Units
	}
	return u
}

// byStatus returns the units of a sale's orders by status, and when they were added up. What was read before is
// returned until it is due again, and where it can't be read.
func (r *Reader) byStatus(ctx context.Context, saleID string) (map[pipeline.OrderStatus]int64, time.Time) {
	one := r.units.of(saleID)
	one.mu.Lock()
	defer one.mu.Unlock()
	began := time.Now()
	if began.Before(one.next) {
		return one.byStatus, one.at
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unitsTimeout)
	defer cancel()
	sums, err := r.Store.UnitsByStatus(ctx, saleID)
	took := time.Since(began)
	one.next = time.Now().Add(max(unitsEvery, unitsShare*took))
	if err == nil {
		one.byStatus, one.at = sums, began.UTC()
	}
	return one.byStatus, one.at
}
