package db

import (
	"context"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/lifecycle"
)

// extendOrderQuery relies on orders_pkey.
const extendOrderQuery = `
with before as (
	select sale_id, id, pay_by from orders
	where sale_id = $1 and id = $5::text::uuid and status = 'awaiting_payment' and pay_by < $2
	for no key update
)` + extendBefore

// extendSaleQuery reads orders_pay_by_idx from its left end. Other calls lock orders in the same order.
const extendSaleQuery = `
with before as (
	select sale_id, id, pay_by from orders
	where sale_id = $1 and status = 'awaiting_payment' and pay_by < $2
	order by pay_by, id
	limit $5
	for no key update
)` + extendBefore

// extendBefore follows a part named before: the orders, which it locked, with the time that they had. Each call that
// extends some leaves a line in the audit log.
const extendBefore = `, extended as (
	update orders o set pay_by = $2
	from before b
	where o.sale_id = b.sale_id and o.id = b.id
	returning o.*
), logged as (
	insert into audit_log (actor, action, sale_id, detail)
	select $3::text, 'extend', $1, jsonb_strip_nulls(jsonb_build_object('reason', $4::text, 'orders', count(*),
		'before', jsonb_build_object('pay_by', event_time(min(b.pay_by))), -- the earliest of all
		'after', jsonb_build_object('pay_by', event_time($2)),
		'order_id', case when count(*) = 1 then min(b.id::text) end))
	from before b
	having count(*) > 0
)
select ` + orderColumns + ` from extended`

// ExtendOrder gives one order more time to pay, if it awaits its payment and has less. It returns the order as it is
// now, and whether this call changed it. Errors: KindInvalid (the time is out of bounds), KindNotFound,
// KindUnavailable.
func (s *Store) ExtendOrder(ctx context.Context, e lifecycle.Extension) (pipeline.Order, bool, error) {
	before, err := s.Order(ctx, e.SaleID, e.OrderID)
	if err != nil {
		return pipeline.Order{}, false, err
	}
	if err := s.checkExtension(ctx, e.Until); err != nil {
		return pipeline.Order{}, false, err
	}
	extended, err := s.endOrders(ctx, extendOrderQuery, e.SaleID, e.Until, e.Actor, e.Reason, before.ID)
	if err != nil {
		return pipeline.Order{}, false, err
	}
	if len(extended) == 1 {
		return extended[0], true, nil
	}
	after, err := s.unchanged(ctx, &before)
	return after, false, err
}

// ExtendOrders gives up to limit orders of a sale that await their payment and have less time until e.Until, those that
// are due first, and returns them. Errors: KindInvalid (the time is out of bounds), KindNotFound, KindUnavailable.
func (s *Store) ExtendOrders(ctx context.Context, e lifecycle.Extension, limit int) ([]pipeline.Order, error) {
	if _, err := s.Sale(ctx, e.SaleID); err != nil {
		return nil, err
	}
	if err := s.checkExtension(ctx, e.Until); err != nil {
		return nil, err
	}
	return s.endOrders(ctx, extendSaleQuery, e.SaleID, e.Until, e.Actor, e.Reason, limit)
}

// checkExtension compares with this server's clock, by which orders expire.
func (s *Store) checkExtension(ctx context.Context, until time.Time) error {
	now, err := queryValue[time.Time](ctx, s, "the time", `select now()`)
	switch {
	case err != nil:
		return err
	case !until.After(now):
		return pipeline.Errorf(pipeline.KindInvalid, "until: %s has passed; it is %s", pipeline.FormatTime(until),
			pipeline.FormatTime(now))
	case until.After(now.Add(lifecycle.MaxExtension)):
		return pipeline.Errorf(pipeline.KindInvalid, "until: %s is more than %d hours from now; extend again when that is near",
			pipeline.FormatTime(until), int(lifecycle.MaxExtension.Hours()))
	}
	return nil
}
