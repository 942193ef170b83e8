package audit

import (
	"fmt"

	"sluice/pipeline"
	"sluice/pipeline/redisstore"
)

// check adds what is wrong to the findings, and reports whether any of it is wrong in Redis, where it can be repaired.
// A disturbed look finds only what one store alone proves.
func (r *Report) check(redis redisstore.SaleCounters, ledger pipeline.Ledger) (repairable bool) {
	found := func(broken bool, format string, args ...any) {
		r.find(broken, format, args...)
		repairable = repairable || broken
	}
	found(r.Exact && r.Drift > 0, "%d units are missing: neither in stock nor in an order", r.Drift)
	found(r.Exact && r.Drift < 0, "stock and orders together have %d units more than the sale", -r.Drift)
	found(redis.Stock < 0, "the stock in Redis is %d", redis.Stock)
	r.checkSold(&ledger)
	found(r.Exact && r.Moving < 0, "%d units more have reached partitions than have left others", -r.Moving)
	found(r.Exact && redis.Total != ledger.Total, "the total is %d in Redis and %d in Postgres",
		redis.Total, ledger.Total)
	found(r.Exact && r.StrayBuyers != 0, "%d buyers are marked in Redis without an order", r.StrayBuyers)
	found(r.Exact && r.LostBuyers != 0, "%d orders have no buyer marked in Redis", r.LostBuyers)
	return repairable
}

// checkSold adds what Postgres contradicts itself in about the units that are sold.
func (r *Report) checkSold(ledger *pipeline.Ledger) {
	r.find(ledger.LiveUnits+r.Withdrawn > r.Total, "%d units are in live orders, of %d in all", ledger.LiveUnits,
		r.Total-r.Withdrawn)
	r.find(ledger.Sold != ledger.LiveUnits, "Postgres counts %d units sold, its live orders hold %d", ledger.Sold,
		ledger.LiveUnits)
}

// find adds a finding where something is broken.
func (r *Report) find(broken bool, format string, args ...any) {
	if broken {
		r.Findings = append(r.Findings, fmt.Sprintf(format, args...))
	}
}

// checkWaitlists adds what is wrong with the waitlists to the findings.
func (r *Report) checkWaitlists(waitlists []auditedWaitlist) {
	for _, w := range waitlists {
		r.Waiting += w.listed
		r.BothWays += int64(len(w.both))
		if w.counted != w.listed || w.entries != w.listed {
			r.Findings = append(r.Findings, fmt.Sprintf("%d people wait, the sale counts %d and Redis holds %d entries",
				w.listed, w.counted, w.entries))
		}
	}
	if r.Exact && r.BothWays > 0 {
		r.Findings = append(r.Findings, fmt.Sprintf("%d buyers wait and hold an order", r.BothWays))
	}
}
