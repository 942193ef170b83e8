package audit

import (
	"fmt"
)

// Report is the result of an audit of one sale: numbers of units, unless a field says otherwise. Drift must be zero and
// Findings empty. What was accepted while the audit looked is left out, except for rows in Postgres.
type Report struct {
	SaleID    string
	Total     int64
	Stock     int64 // left in Redis
	Live      int64 // in live orders in Postgres
	InFlight  int64 // accepted, in the stream, without a row yet
	Unapplied int64 // released in Postgres, not yet given back in Redis
	Withdrawn int64 // of returned orders, and not put on sale again
	Moving    int64 // on their way between two partitions of the sale
	// Drift is Total − (Stock + Live + InFlight + Unapplied + Withdrawn + Moving): more than 0 is lost stock, less is stock that
	// could be sold twice.
	Drift       int64
	Orders      int64 // rows in Postgres, in any status
	Accepted    int64 // accepts counted by Redis
	Buyers      int64 // slots in Redis
	StrayBuyers int64 // slots without a live order or an order in flight: buyers who can't order, for no reason
	LostBuyers  int64 // live orders without a slot: buyers who could order twice
	Waiting     int64 // people in the waitlist
	BothWays    int64 // buyers who wait and hold a slot
	// Receipts that buyers hold, as accept journals know them: those that neither store has, and those of any sale that
	// are too many to be listed, and may have been lost. While there are such, a clean report proves nothing about them.
	LostReceipts, UncheckedReceipts int64
	// What was repaired or rejected during the sale. It does not unbalance the books, but is reported, so that no repair
	// is silent.
	Rejected    int64 // orders that were rejected after their accept, with a dead letter each
	Letters     int64 // dead letters of the sale that wait for an operator
	AcceptsLost int64 // accepts that rebuilds found neither in Postgres nor in the stream
	Rebuilds    int64 // how often the sale was rebuilt in Redis, repairs included; each is in the audit log
	// Exact says that nothing was released or redefined during the look; else Drift, StrayBuyers and LostBuyers prove
	// nothing.
	Exact bool
	// PostgresAlone says that the sale is over and not in Redis any more, so that there is nothing to compare Postgres
	// with. Stock is then what was never sold, Accepted what Postgres has counted, and what is only known of Redis is 0.
	PostgresAlone bool
	Findings      []string
}

// Clean reports whether nothing wrong was found. Only an exact report proves that the sale's books are balanced.
func (r *Report) Clean() bool { return len(r.Findings) == 0 }

// Notes say what was withdrawn, repaired or rejected during the sale. None of it is wrong now, but no repair may be
// silent.
func (r *Report) Notes() []string {
	var notes []string
	note := func(n int64, format string) {
		if n != 0 {
			notes = append(notes, fmt.Sprintf(format, n))
		}
	}
	note(r.Withdrawn, "%d units of returned orders did not go on sale again")
	note(r.Rejected, "%d accepted orders were rejected, each with a dead letter")
	note(r.Letters, "%d dead letters wait for an operator")
	note(r.AcceptsLost, "%d accepts were found nowhere by a rebuild, when Redis had lost something")
	note(r.UncheckedReceipts, "%d receipts are overdue in Postgres and too many to be looked up; audit again once the "+
		"workers are done with the backlog")
	note(r.Rebuilds, "rebuilt in Redis %d times; the audit log tells when, by whom and with what numbers")
	return notes
}
