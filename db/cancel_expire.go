package db

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

// releaseEnded follows a part named `ended`, the orders of the sale $1 that stopped being live in this statement. In
// the same transaction their units and slots are owed to Redis and no longer count as sold.
const releaseEnded = `
, owed as (
	insert into releases (sale_id, order_id, sequence, user_id, quantity, partition, reason)
	select sale_id, id, sequence, user_id, quantity, partition, status from ended
	on conflict do nothing
), moved as (
	select sale_id, -quantity as units from ended
), ` + countMoved + `
select ` + orderColumns + ` from ended`

// cancelQuery relies on orders_pkey.
const cancelQuery = `
with ended as (
	update orders set status = 'cancelled', closed_at = now()
	where sale_id = $1 and id = $2::text::uuid and status = any($3::text[]) and user_id = $4
	returning *
)` + releaseEnded

// CancelOrder cancels a buyer's order, if its status allows that, and owes its units to Redis in the same transaction.
// It returns the order as it is now, and whether this call changed it. Calling it again changes nothing. Errors:
// KindNotFound (there is no such order, or it is another buyer's), KindUnavailable.
func (s *Store) CancelOrder(ctx context.Context, saleID, orderID, userID string) (pipeline.Order, bool, error) {
	before, err := s.Order(ctx, saleID, orderID)
	if err == nil && before.UserID != userID {
		err = errNoOrder
	}
	if err != nil {
		return pipeline.Order{}, false, err
	}
	return s.cancelOrder(ctx, &before, cancelQuery, userID)
}

// operatorCancelQuery also writes the line of the audit log.
const operatorCancelQuery = `
with before as (
	select sale_id, id, status from orders
	where sale_id = $1 and id = $2::text::uuid and status = any($3::text[])
	for no key update
), ended as (
	update orders o set status = 'cancelled', closed_at = now()
	from before b
	where o.sale_id = b.sale_id and o.id = b.id
	returning o.*
), logged as (
	insert into audit_log (actor, action, sale_id, detail)
	select $4::text, 'cancel', e.sale_id, jsonb_build_object('order_id', e.id, 'reason', $5::text, 'quantity', e.quantity,
		'before', jsonb_build_object('status', b.status), 'after', jsonb_build_object('status', e.status))
	from ended e join before b using (sale_id, id)
)` + releaseEnded

// CancelOrderAs is CancelOrder for an operator, whose name and reason go to the audit log. The order may be any
// buyer's.
func (s *Store) CancelOrderAs(
	ctx context.Context, saleID, orderID, actor, reason string,
) (pipeline.Order, bool, error) {
	before, err := s.Order(ctx, saleID, orderID)
	if err != nil {
		return pipeline.Order{}, false, err
	}
	return s.cancelOrder(ctx, &before, operatorCancelQuery, actor, reason)
}

// cancelOrder runs one of the statements above, with args after those that name the order.
func (s *Store) cancelOrder(
	ctx context.Context, o *pipeline.Order, query string, args ...any,
) (pipeline.Order, bool, error) {
	args = append([]any{o.SaleID, o.ID, statuses(pipeline.StatusCancelled.Before())}, args...)
	ended, err := s.endOrders(ctx, query, args...)
	if err != nil {
		return pipeline.Order{}, false, err
	}
	if len(ended) == 1 {
		return ended[0], true, nil
	}
	after, err := s.unchanged(ctx, o) // something else won the race
	return after, false, err
}

// unchanged is an order that a call has left as it was, for an answer that its buyer or an operator relies on.
func (s *Store) unchanged(ctx context.Context, o *pipeline.Order) (pipeline.Order, error) {
	after, err := s.Order(ctx, o.SaleID, o.ID)
	if err != nil {
		return after, err
	}
	return after, s.confirm(ctx)
}

// overdueQuery reads the left end of orders_pay_by_idx. An order expires once it is overdue by two clocks, Postgres'
// and this process': one that is ahead must not take an order from a buyer who still has time to pay. None expires on a
// server that was not examined: it may have forgotten that they are paid.
const overdueQuery = `
select sale_id, array_agg(id::text)
from (
	select sale_id, id from orders
	where status = 'awaiting_payment' and pay_by < least(now(), $2)
	order by pay_by
	limit $1
) overdue
group by sale_id
order by sale_id`

// expireQuery ends those of one sale, by orders_pkey. What another run, a payment or a cancellation has locked is left
// to it; what it leaves is due again.
const expireQuery = `
with examined as materialized (
	select 1 as one where server_is_examined()
), due as (
	select id from orders
	where sale_id = $1 and id = any($4::text[]::uuid[]) and status = 'awaiting_payment' and pay_by < least(now(), $3)
	for no key update skip locked
), ended as (
	update orders o set status = 'expired', closed_at = now()
	from due cross join examined
	where o.sale_id = $1 and o.id = due.id and o.status = any($2::text[])
	returning o.*
)` + releaseEnded

// ExpireOrders expires up to limit orders that were to be paid by now, those that are longest overdue first, and owes
// their units to Redis, in one transaction for each sale. It returns them. Any number of calls may run at once: no
// order is expired twice.
func (s *Store) ExpireOrders(ctx context.Context, limit int) ([]pipeline.Order, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	type overdue struct {
		sale   string
		orders []string
	}
	now := time.Now()
	found, err := queryAll(ctx, s, "overdue orders", func(row pgx.CollectableRow) (o overdue, err error) {
		return o, row.Scan(&o.sale, &o.orders)
	}, overdueQuery, limit, now)
	if err != nil {
		return nil, err
	}
	var ended []pipeline.Order
	for _, of := range found {
		expired, err := s.endOrders(ctx, expireQuery, of.sale, statuses(pipeline.StatusExpired.Before()), now, of.orders)
		if err != nil {
			return ended, err
		}
		ended = append(ended, expired...)
	}
	return ended, nil
}

// endOrders runs a statement that ends orders, and returns those.
func (s *Store) endOrders(ctx context.Context, query string, args ...any) ([]pipeline.Order, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	return queryAll(ctx, s, "end orders", scanOrder, query, args...)
}

func statuses(list []pipeline.OrderStatus) []string {
	texts := make([]string, len(list))
	for i, status := range list {
		texts[i] = string(status)
	}
	return texts
}
