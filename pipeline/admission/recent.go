package admission

import (
	"sync"
	"time"

	"sluice/lua"
	"sluice/pipeline"
)

const (
	// recentAge is how long an accept is remembered after its receipt was given: far longer than workers need to bring it
	// to Postgres, from where it can't be lost any more.
	recentAge = time.Minute
	// recentLimit bounds what is remembered, some 40 MB: at 10,000 accepts a second, the last 13 seconds.
	recentLimit = 1 << 17
)

// recentAccepts are the accepts that this process gave receipts for. When Redis has lost its state they are submitted
// to it again: a receipt stands for an order as long as one process lives that remembers it.
type recentAccepts struct {
	mu      sync.Mutex // protects the two below
	accepts []recentAccept
	first   int // index of the oldest; those before it are forgotten
}

type recentAccept struct {
	pipeline.Accept
	at time.Time // by this machine's monotonic clock
}

// add remembers accepts before their receipts are given.
func (r *recentAccepts) add(accepts []recentAccept) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for r.first < len(r.accepts) {
		old, full := now.Sub(r.accepts[r.first].at) > recentAge, len(r.accepts)-r.first+len(accepts) > recentLimit
		if !old && !full {
			break
		}
		r.accepts[r.first] = recentAccept{} // frees its strings
		r.first++
	}
	if r.first > len(r.accepts)/2 { // each is moved at most once for each that is added
		r.accepts = append(r.accepts[:0], r.accepts[r.first:]...)
		r.first = 0
	}
	r.accepts = append(r.accepts, accepts...)
}

// of returns the remembered accepts of a partition, by sale.
func (r *recentAccepts) of(p pipeline.Partition) map[string][]pipeline.Accept {
	r.mu.Lock()
	defer r.mu.Unlock()
	bySale := map[string][]pipeline.Accept{}
	now := time.Now()
	for _, accept := range r.accepts[r.first:] {
		if accept.Partition == p && now.Sub(accept.at) <= recentAge {
			bySale[accept.SaleID] = append(bySale[accept.SaleID], accept.Accept)
		}
	}
	return bySale
}

// RecentAccepts returns the accepts on a partition that this Controller gave receipts for within the last minute, by
// sale.
func (c *Controller) RecentAccepts(p pipeline.Partition) map[string][]pipeline.Accept {
	return c.recent.of(p)
}

// remember keeps the accepts of a batch whose receipts are about to be given.
func (g *gate) remember(batch []*pendingRequest, reply lua.AdmitReply) {
	accepts := make([]recentAccept, 0, len(batch))
	now := time.Now()
	for i, outcome := range reply.Outcomes {
		if outcome.Code != lua.AdmitAccepted && outcome.Code != lua.AdmitReplayed {
			continue
		}
		slot := outcome.Slot
		accepts = append(accepts, recentAccept{at: now, Accept: pipeline.Accept{
			Event: pipeline.Event{
				Partition: g.at.Partition, SaleID: g.at.SaleID, Sequence: slot.Sequence, OrderID: slot.OrderID, Number: slot.Number,
				UserID: batch[i].request.UserID, Quantity: slot.Quantity, AcceptedAt: time.UnixMilli(slot.AcceptedMS).UTC(),
			},
			KeyHash: slot.KeyHash, PayloadHash: slot.PayloadHash,
		}})
	}
	if len(accepts) > 0 {
		g.controller.recent.add(accepts)
	}
}
