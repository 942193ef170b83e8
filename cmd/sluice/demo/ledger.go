package demo

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// queryTimeout bounds one look at Postgres or Redis.
const queryTimeout = 10 * time.Second

// ledger reads how far things are in Postgres with queries of the demo's own.
type ledger struct{ pool *pgxpool.Pool }

func queryOne[T any](ctx context.Context, l ledger, query string, args ...any) (one T, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, err := l.pool.Query(ctx, query, args...)
	if err != nil {
		return one, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[T])
}

// persisted counts which of some orders have a row.
func (l ledger) persisted(ctx context.Context, orderIDs []string) (int, error) {
	type count struct{ N int }
	c, err := queryOne[count](ctx, l, `select count(*) from orders where sale_id = $1 and id = any($2::text[]::uuid[])`,
		saleID, orderIDs)
	return c.N, err
}

// unfinished is what has not come to its end yet.
type unfinished struct {
	Awaiting int // orders that wait for payment
	Money    int // payments that wait for their order
	Releases int // units on their way back to Redis
	Orders   int // all of them; this one only shows whether another came in
}

func (u unfinished) any() bool { return u.Awaiting+u.Money+u.Releases > 0 }

func (l ledger) unfinished(ctx context.Context) (unfinished, error) {
	return queryOne[unfinished](ctx, l, `
		select (select count(*) from orders where sale_id = $1 and status = 'awaiting_payment'),
			(select count(*) from payments where outcome = 'waiting'),
			(select count(*) from releases where sale_id = $1 and applied_at is null),
			(select count(*) from orders where sale_id = $1)`, saleID)
}

// Ends counts orders by how they ended.
type Ends struct {
	Awaiting   int `json:"awaiting_payment"`
	Paid       int `json:"paid"`
	Cancelled  int `json:"cancelled"`
	Expired    int `json:"expired"`
	RefundDue  int `json:"refund_due"`
	HandedOver int `json:"handed_over"` // of all these, to buyers who waited
}

func (l ledger) ends(ctx context.Context) (Ends, error) {
	return queryOne[Ends](ctx, l, `
		select count(*) filter (where status = 'awaiting_payment'), count(*) filter (where status = 'paid'),
			count(*) filter (where status = 'cancelled'), count(*) filter (where status = 'expired'),
			count(*) filter (where status = 'refund_due'), count(w.order_id)
		from orders o left join waitlist w on w.sale_id = o.sale_id and w.order_id = o.id
		where o.sale_id = $1`, saleID)
}
