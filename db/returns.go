package db

import (
	"context"

	"sluice/pipeline"
	"sluice/pipeline/lifecycle"
)

// returnQuery relies on orders_pkey and payments_order_idx. In one transaction:
//
//   - ended: the paid order is returned, if a payment of it is recorded.
//   - due: that payment is to be paid back.
//   - owed: a release gives the slot back to Redis, and the units too, unless they are withdrawn.
//   - counted: the units no longer count as sold. Those that are withdrawn stay taken: sold and withdrawn ones
//     together never exceed the total. The sale's row comes late, as in countMoved.
//   - marked: withdrawn units by partition, for a rebuild of it.
const returnQuery = `
with ended as (
	update orders o set status = 'returned', closed_at = now()
	where o.sale_id = $1 and o.id = $2::text::uuid and o.status = any($3::text[]) and exists (
		select from payments p where p.sale_id = o.sale_id and p.order_id = o.id and p.outcome = 'paid'
	)
	returning *
), due as (
	update payments p set outcome = 'refund_due', reason = 'order-returned', order_status = 'returned',
		detail = 'the order was returned; it is to be paid back'
	from ended e
	where p.sale_id = e.sale_id and p.order_id = e.id and p.outcome = 'paid'
), logged as (
	insert into audit_log (actor, action, sale_id, detail)
	select $4::text, 'return', sale_id, jsonb_build_object('order_id', id, 'reason', $5::text, 'quantity', quantity,
		'restock', not $6::boolean, 'before', jsonb_build_object('status', 'paid'),
		'after', jsonb_build_object('status', status)) from ended
), owed as (
	insert into releases (sale_id, order_id, sequence, user_id, quantity, partition, reason, withdrawn)
	select sale_id, id, sequence, user_id, quantity, partition, status, $6::boolean from ended
	on conflict do nothing
), counted as (
	update sales s set sold = s.sold - e.quantity,
		withdrawn = s.withdrawn + case when $6::boolean then e.quantity else 0 end
	from ended e
	where s.id = $1
	returning s.id
), marked as (
	insert into watermarks as w (sale_id, partition, withdrawn)
	select e.sale_id, e.partition, e.quantity from ended e join counted c on c.id = e.sale_id where $6::boolean
	on conflict (sale_id, partition) do update
	set withdrawn = w.withdrawn + excluded.withdrawn, updated_at = excluded.updated_at
)
select ` + orderColumns + ` from ended`

// ReturnOrder returns a paid order, whose payment becomes due for refund in the same transaction. It returns the order
// as it is now, and whether this call changed it. Calling it again changes nothing. Errors: KindNotFound,
// KindUnavailable.
func (s *Store) ReturnOrder(ctx context.Context, r lifecycle.Return) (pipeline.Order, bool, error) {
	before, err := s.Order(ctx, r.SaleID, r.OrderID)
	if err != nil {
		return pipeline.Order{}, false, err
	}
	ended, err := s.endOrders(ctx, returnQuery, before.SaleID, before.ID, statuses(pipeline.StatusReturned.Before()),
		r.Actor, r.Reason, !r.Restock)
	if err != nil {
		return pipeline.Order{}, false, err
	}
	if len(ended) == 1 {
		return ended[0], true, nil
	}
	after, err := s.unchanged(ctx, &before) // something else won the race, or this was done before
	return after, false, err
}
