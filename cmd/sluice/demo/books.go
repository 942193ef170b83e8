package demo

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// books are what Postgres and Redis hold in the end, read with queries of the demo's own.
type books struct {
	rows     []row
	payments []payment
	left     int // units that Redis still has for sale
}

// payment is a record of money in Postgres.
type payment struct {
	WebhookID string
	OrderID   string
	Outcome   string
	Reason    string
	Amount    int64
}

func (s *show) read(ctx context.Context) (b books, err error) {
	if b.rows, err = s.ledger.rows(ctx); err != nil {
		return b, err
	}
	if b.payments, err = s.ledger.payments(ctx); err != nil {
		return b, err
	}
	b.left, err = s.unitsLeft(ctx)
	return b, err
}

func (l *ledger) payments(ctx context.Context) ([]payment, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, err := l.conn.Query(ctx, `
		select coalesce(webhook_id, ''), coalesce(order_id::text, ''), outcome, reason, coalesce(amount, 0) from payments`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[payment])
}

// moving is what has not come to its end yet.
type moving struct {
	Awaiting int // orders that wait for payment
	Money    int // payments that wait for their order
	Releases int // units on their way back to Redis
	Orders   int // all of them; this one only tells whether another came in
}

func (m moving) any() bool { return m.Awaiting+m.Money+m.Releases > 0 }

func (l *ledger) moving(ctx context.Context) (moving, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, err := l.conn.Query(ctx, `
		select (select count(*) from orders where sale_id = $1 and status = 'awaiting_payment'),
			(select count(*) from payments where outcome = 'waiting'),
			(select count(*) from releases where sale_id = $1 and applied_at is null),
			(select count(*) from orders where sale_id = $1)`, l.saleID)
	if err != nil {
		return moving{}, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[moving])
}

// Ends counts orders by how they ended.
type Ends struct {
	Awaiting   int `json:"awaiting_payment"`
	Paid       int `json:"paid"`
	Cancelled  int `json:"cancelled"`
	Expired    int `json:"expired"`
	RefundDue  int `json:"refund_due"`
	HandedOver int `json:"handed_over"` // of all these, to people who waited
}

func (l *ledger) takings(ctx context.Context) (Ends, error) {
	rows, err := l.conn.Query(ctx, `
		select count(*) filter (where status = 'awaiting_payment'), count(*) filter (where status = 'paid'),
			count(*) filter (where status = 'cancelled'), count(*) filter (where status = 'expired'),
			count(*) filter (where status = 'refund_due'), count(w.order_id)
		from orders o left join waitlist w on w.sale_id = o.sale_id and w.order_id = o.id
		where o.sale_id = $1`, l.saleID)
	if err != nil {
		return Ends{}, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Ends])
}
