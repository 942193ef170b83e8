package retention

import (
	"sluice/pipeline"
	"sluice/pipeline/auditlog"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/payments"
)

// Batch is what one transaction drops. A batch that was not committed comes again under its number.
type Batch struct {
	SaleID   string // empty: of no sale
	Number   int64  // of the sale's batches, from 1; without a sale, the id of the first row
	Orders   []lifecycle.ListedOrder
	Payments []payments.Payment
	Refunds  []payments.Refund
	Waitlist []pipeline.WaitlistEntry
	Letters  []deadletter.Letter
	Log      []auditlog.Entry
}

// Rows are all rows of a batch.
func (b *Batch) Rows() int {
	return len(b.Orders) + len(b.Payments) + len(b.Refunds) + len(b.Waitlist) + len(b.Letters) + len(b.Log)
}

// Export writes a batch to where it is kept. It may be called again with a batch of the same number, which takes the
// place of the first one. The batch is dropped only if it returns nil.
type Export func(*Batch) error

// Progress is what a batch has left.
type Progress struct {
	Rows     int    // that were dropped
	Finished bool   // nothing of the sale is left
	Held     string // why the rest can't be dropped now; empty: there is no such reason
}
