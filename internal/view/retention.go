package view

import (
	"time"

	"sluice/pipeline/retention"
)

// Retention says how long what is kept, and what became of the sales that have left Redis.
type Retention struct {
	Policy    *RetentionPolicy `json:"policy"` // null until a worker has said it
	Sales     []DroppedSale    `json:"sales"`
	NextAfter *string          `json:"next_after"` // for the next page; null on the last one
}

// RetentionPolicy is how long what is kept, in seconds; 0: for ever.
type RetentionPolicy struct {
	SaleSeconds     int64  `json:"sale_seconds"` // in Redis, after the sale is over
	OrderSeconds    int64  `json:"order_seconds"`
	AuditLogSeconds int64  `json:"audit_log_seconds"`
	EventSeconds    int64  `json:"event_seconds"`
	Exported        bool   `json:"exported"` // what is dropped is written into files before
	SaidAt          string `json:"said_at"`
}

// DroppedSale is a sale that has left Redis.
type DroppedSale struct {
	SaleID         string  `json:"sale_id"`
	RetiredAt      string  `json:"retired_at"`
	DueAt          *string `json:"due_at"`      // when its orders become due; null: never
	BegunAt        *string `json:"begun_at"`    // when they began to be dropped
	FinishedAt     *string `json:"finished_at"` // when nothing was left
	LookedAt       *string `json:"looked_at"`
	Held           *string `json:"held"` // why nothing could be dropped then
	OrdersDropped  int64   `json:"orders_dropped"`
	OrdersExported int64   `json:"orders_exported"`
}

// NewRetention views a report of at most limit sales.
func NewRetention(r *retention.Report, limit int) Retention {
	v := Retention{Sales: []DroppedSale{}}
	if !r.SaidAt.IsZero() {
		p := r.Policy
		v.Policy = &RetentionPolicy{
			int64(p.Sales / time.Second), int64(p.Orders / time.Second), int64(p.AuditLog / time.Second),
			int64(p.Events / time.Second), r.Exported, Time(r.SaidAt),
		}
	}
	for i := range r.Sales {
		s := &r.Sales[i]
		v.Sales = append(v.Sales, DroppedSale{
			s.SaleID, Time(s.RetiredAt), TimeOrNil(r.DueAt(s)), TimeOrNil(s.BegunAt), TimeOrNil(s.FinishedAt),
			TimeOrNil(s.LookedAt), textOrNil(s.Held), s.Dropped, s.Exported,
		})
	}
	if n := len(r.Sales); n == limit {
		v.NextAfter = &r.Sales[n-1].SaleID
	}
	return v
}
