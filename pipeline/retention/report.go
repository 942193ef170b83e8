package retention

import "time"

// MaxListed is the most sales of one page.
const MaxListed = 500

// Report says how long what is kept, and what became of the sales that have left Redis.
type Report struct {
	Policy   Policy
	Exported bool      // what is dropped is written into files before
	SaidAt   time.Time // when a worker said so last; zero: none has
	Sales    []SaleReport
}

// SaleReport is a sale that has left Redis.
type SaleReport struct {
	SaleID     string
	RetiredAt  time.Time // when it left Redis
	BegunAt    time.Time // when its orders began to be dropped; zero: all are kept
	FinishedAt time.Time // when nothing of it was left; zero: something is
	LookedAt   time.Time // when that was tried last; zero: it was not
	Held       string    // why nothing could be dropped then; empty: there was no such reason
	Dropped    int64     // orders
	Exported   int64     // of them
}

// DueAt is when the orders of a sale become due; zero: never.
func (r *Report) DueAt(s *SaleReport) time.Time {
	if r.Policy.Orders == 0 {
		return time.Time{}
	}
	return s.RetiredAt.Add(r.Policy.Orders)
}

// Filter chooses sales of a report.
type Filter struct {
	After    string // a sale's id: only those after it
	Finished bool   // those of which nothing is left, too
	Limit    int    // 1..MaxListed
}
