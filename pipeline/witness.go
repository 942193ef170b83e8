package pipeline

import (
	"context"
	"errors"
	"sync"
	"time"

	"sluice/lua"
)

const (
	// witnessAge is how long an accept is remembered after it was told: far longer than workers need to bring it to Postgres,
	// from where it can't be lost any more.
	witnessAge = time.Minute
	// witnessLimit bounds what is remembered, some 40 MB: at 10,000 accepts a second, the last 13 seconds.
	witnessLimit = 1 << 17
)

// witness remembers the accepts that this process told buyers of. When Redis has lost its state they are shown to it again:
// a buyer who holds a receipt has an order as long as one process lives that knows of it.
type witness struct {
	mu     sync.Mutex // protects the two below
	recent []witnessed
	first  int // index of the oldest; those before it are forgotten
}

type witnessed struct {
	told
	at time.Time // by this machine's monotonic clock
}

// remember notes accepts before they are told.
func (w *witness) remember(accepts []witnessed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for w.first < len(w.recent) && (now.Sub(w.recent[w.first].at) > witnessAge || len(w.recent)-w.first+len(accepts) > witnessLimit) {
		w.recent[w.first] = witnessed{} // frees its strings
		w.first++
	}
	if w.first > len(w.recent)/2 { // moved at most once for each that is added
		w.recent = append(w.recent[:0], w.recent[w.first:]...)
		w.first = 0
	}
	w.recent = append(w.recent, accepts...)
}

// of returns what is remembered of a partition, by sale.
func (w *witness) of(p Partition) map[string][]told {
	w.mu.Lock()
	defer w.mu.Unlock()
	bySale := map[string][]told{}
	now := time.Now()
	for _, one := range w.recent[w.first:] {
		if one.Partition == p && now.Sub(one.at) <= witnessAge {
			bySale[one.SaleID] = append(bySale[one.SaleID], one.told)
		}
	}
	return bySale
}

// witness notes what a batch's buyers are about to be told.
func (g *gate) witness(batch []*ticket, reply lua.AdmitReply) {
	accepts := make([]witnessed, 0, len(batch))
	now := time.Now()
	for i, outcome := range reply.Outcomes {
		if outcome.Code != lua.AdmitAccepted && outcome.Code != lua.AdmitReplayed {
			continue
		}
		slot := outcome.Slot
		accepts = append(accepts, witnessed{at: now, told: told{
			Event: Event{
				Partition: g.id.partition, SaleID: g.id.sale, Sequence: slot.Sequence, OrderID: slot.OrderID, Number: slot.Number,
				UserID: batch[i].request.UserID, Quantity: slot.Quantity, AcceptedAt: time.UnixMilli(slot.AcceptedMS).UTC(),
			},
			keyHash: slot.KeyHash, payloadHash: slot.PayloadHash,
		}})
	}
	if len(accepts) > 0 {
		g.admission.witness.remember(accepts)
	}
}

// Witness returns a Witness of the accepts that this Admission told buyers of within the last minute.
func (a *Admission) Witness(store ReadmitStore) Witness {
	r := &readmitter{rdb: a.confirm.rdb, keys: a.keys, store: store, metrics: a.metrics, log: a.log}
	return func(ctx context.Context, p Partition) error {
		var errs []error
		for saleID, accepts := range a.witness.of(p) {
			stands, err := r.readmit(ctx, p, saleID, accepts)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			counts := map[standing]int{}
			for _, s := range stands {
				counts[s]++
			}
			a.log.Info("showed accepted orders to Redis again", "sale", saleID, "partition", p, "orders", len(stands),
				"held", counts[standsHeld], "known", counts[standsKnown], "renewed", counts[standsRenewed], "lost", counts[standsLost])
		}
		return errors.Join(errs...)
	}
}
