package db

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

const orderColumns = `sale_id, id, coalesce(number, 0), user_id, quantity, status, reason, partition, sequence,
	accepted_at, persisted_at, pay_by, paid_at, closed_at, version`

// orderQuery relies on orders_pkey.
const orderQuery = `select ` + orderColumns + ` from orders where sale_id = $1 and id = $2::text::uuid`

// latestOrderQuery reads three indexes, orders_live_buyer_key, orders_closed_buyer_idx and orders_returned_buyer_idx,
// so that none needs all kinds of orders.
const latestOrderQuery = `
select ` + orderColumns + ` from (
	(select o.*, true as live from orders o
	where sale_id = $1 and user_id = $2 and status in ('awaiting_payment', 'confirmed', 'paid'))
	union all
	(select o.*, false as live from orders o
	where sale_id = $1 and user_id = $2 and status in ('cancelled', 'expired', 'rejected', 'refund_due')
	order by accepted_at desc limit 1)
	union all
	(select o.*, false as live from orders o
	where sale_id = $1 and user_id = $2 and status in ('returned', 'refunded')
	order by accepted_at desc limit 1)
) of_buyer
order by live desc, accepted_at desc limit 1`

var errNoOrder = pipeline.Errorf(pipeline.KindNotFound, "no such order")

// Order returns one order, or a KindNotFound error.
func (s *Store) Order(ctx context.Context, saleID, orderID string) (pipeline.Order, error) {
	id, err := uuid.Parse(orderID)
	if err != nil || !pipeline.ValidSaleID(saleID) {
		return pipeline.Order{}, errNoOrder
	}
	return s.oneOrder(ctx, orderQuery, saleID, id.String())
}

// LatestOrder returns a buyer's live order in a sale, else the one accepted last, else a KindNotFound error.
func (s *Store) LatestOrder(ctx context.Context, saleID, userID string) (pipeline.Order, error) {
	if pipeline.ValidateUserID(userID) != nil || !pipeline.ValidSaleID(saleID) {
		return pipeline.Order{}, errNoOrder
	}
	return s.oneOrder(ctx, latestOrderQuery, saleID, userID)
}

func (s *Store) oneOrder(ctx context.Context, query string, args ...any) (pipeline.Order, error) {
	order, err := queryOne(ctx, s, "order", scanOrder, query, args...)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errNoOrder
	}
	return order, err
}

func scanOrder(row pgx.CollectableRow) (pipeline.Order, error) { return scanOrderAnd(row) }

// scanOrderAnd reads orderColumns, and what the query selects after them.
func scanOrderAnd(row pgx.CollectableRow, more ...any) (pipeline.Order, error) {
	var o pipeline.Order
	var id uuid.UUID
	var payBy, paidAt, closedAt *time.Time
	err := row.Scan(append([]any{
		&o.SaleID, &id, &o.Number, &o.UserID, &o.Quantity, &o.Status, &o.Reason, &o.Partition, &o.Sequence,
		&o.AcceptedAt, &o.PersistedAt, &payBy, &paidAt, &closedAt, &o.Version,
	}, more...)...)
	o.ID = id.String()
	o.AcceptedAt, o.PersistedAt = o.AcceptedAt.UTC(), o.PersistedAt.UTC()
	o.PayBy, o.PaidAt, o.ClosedAt = timeOrZero(payBy), timeOrZero(paidAt), timeOrZero(closedAt)
	return o, err
}
