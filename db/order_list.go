package db

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/lifecycle"
)

const (
	// firstLook and maxLook are how many orders one statement looks at: the first few often do, and many at once are
	// still some 20 ms.
	firstLook, maxLook = 1000, 10_000
	// maxLooked bounds how many orders are looked at for one page: under a second.
	maxLooked = 200_000
)

// Orders returns a page of the orders that a filter chooses, the newest first. What is looked for by id, number, buyer
// or payment is found by its index; another filter is compared with one order after the other. Errors: KindInvalid,
// KindUnavailable.
func (s *Store) Orders(ctx context.Context, filter lifecycle.OrderFilter) (lifecycle.OrderPage, error) {
	var page lifecycle.OrderPage
	if err := filter.Validate(); err != nil {
		return page, err
	}
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	wanted := filter.Limit + 1 // one more says whether there is a next page
	look := max(firstLook, wanted)
	for looked := 0; looked < maxLooked; looked, look = looked+look, min(4*look, maxLook) {
		found, err := s.lookAtOrders(ctx, &filter, look, wanted-len(page.Orders))
		if err != nil {
			return lifecycle.OrderPage{}, err
		}
		page.Orders = append(page.Orders, found.orders...)
		if len(page.Orders) == wanted {
			page.Orders = page.Orders[:filter.Limit]
			page.Next = positionOf(&page.Orders[filter.Limit-1])
			return page, nil
		}
		if found.end.IsZero() {
			return page, nil
		}
		filter.After = found.end
	}
	page.Next = filter.After
	return page, nil
}

func positionOf(o *lifecycle.ListedOrder) lifecycle.OrderPosition {
	return lifecycle.OrderPosition{AcceptedAt: o.AcceptedAt, OrderID: uuid.MustParse(o.ID)}
}

// orderLook is what one statement has found.
type orderLook struct {
	orders []lifecycle.ListedOrder
	end    lifecycle.OrderPosition // of the last order that was looked at; zero where there are no more
}

// lookAtOrders looks at so many orders and returns at most limit of them that the filter chooses.
func (s *Store) lookAtOrders(
	ctx context.Context, filter *lifecycle.OrderFilter, look, limit int,
) (found orderLook, err error) {
	query, args := orderListQuery(filter, look, limit)
	scan := func(row pgx.CollectableRow) (struct{}, error) {
		var o lifecycle.ListedOrder
		var sale pipeline.Sale
		var place int
		var chosen bool
		more := []any{&sale.UnitPrice, &sale.Currency, &sale.EarlierPrices, &chosen, &place}
		if o.Order, err = scanOrderAnd(row, more...); err != nil {
			return struct{}{}, err
		}
		o.UnitPrice, o.Currency = sale.PriceOf(o.ID, 1)
		if chosen {
			found.orders = append(found.orders, o)
		}
		if place == look {
			found.end = positionOf(&o)
		}
		return struct{}{}, nil
	}
	err = s.begin(ctx, func(tx pgx.Tx) error {
		if !isLookup(filter) {
			if _, err := tx.Exec(ctx, inOrderOfAnIndex); err != nil {
				return err
			}
		}
		// Planned for these values.
		rows, err := tx.Query(ctx, query, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...)
		if err != nil {
			return err
		}
		_, err = pgx.CollectRows(rows, scan)
		return err
	})
	return found, wrap(err, "orders")
}

// isLookup reports whether a filter names few orders, which are sorted once they are found.
func isLookup(f *lifecycle.OrderFilter) bool {
	return f.OrderID != "" || f.Number != 0 || f.PaymentID != "" || f.UserID != ""
}

// inOrderOfAnIndex has the planner read an index in its order wherever one serves. A sale that was sold out a minute
// ago has no statistics yet: the planner takes it for a small one, and would sort all of it for each page.
const inOrderOfAnIndex = `
select set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true)`

// orderListQuery looks at orders in the order of an index, and returns those that are chosen, and the last one that it
// looked at, chosen or not: the next look begins there. Row numbers are counted while the index is read.
func orderListQuery(f *lifecycle.OrderFilter, look, limit int) (query string, args []any) {
	b := queryBuilder{}
	source, newestFirst := orderSource(f, &b), "o.accepted_at desc, o.id desc"
	if f.SaleID != "" {
		newestFirst = "o.id desc"
	}
	within := append(source.where, after(f, &b)...)
	place := b.arg(look)
	return `
select ` + orderColumns + `, coalesce(unit_price, 0), coalesce(currency, ''), earlier_prices, chosen, place
from (
	select o.*, ` + chosen(f, &b) + ` as chosen, row_number() over (order by ` + newestFirst + `) as place
	from ` + source.from + `
	where ` + strings.Join(within, " and ") + `
	order by ` + newestFirst + `
	limit ` + place + `::integer
) o
cross join lateral (select unit_price, currency, earlier_prices from sales where id = o.sale_id) price
where o.chosen or o.place = ` + place + `::integer
order by ` + newestFirst + `
limit ` + b.arg(limit) + `::integer`, b.args
}

// source is where orders are looked for.
type source struct {
	from  string // with the orders as o
	where []string
}

// salesWithOrders are the sales that can have orders here. Where all of them were dropped, there are none to look for.
const salesWithOrders = `(
	select * from sales s where s.orders_dropped_at is null or exists (
		select from sale_drops d where d.sale_id = s.id and d.finished_at is null
	)
) every`

// orderSource takes the narrowest index that a filter names. Sales are few: what has no index over all of them is
// looked up in each.
func orderSource(f *lifecycle.OrderFilter, b *queryBuilder) source {
	everySale := func(of string) source {
		from := salesWithOrders + ` cross join lateral (` + of + `) o`
		if f.SaleID == "" {
			return source{from, []string{"true"}}
		}
		return source{from, []string{"every.id = " + b.arg(f.SaleID)}}
	}
	switch {
	case f.OrderID != "": // orders_pkey
		return everySale(`select * from orders where sale_id = every.id and id = ` + b.arg(f.OrderID) + `::text::uuid`)
	case f.Number != 0: // orders_number_key
		return source{"orders o", []string{"o.number = " + b.arg(f.Number)}}
	case f.PaymentID != "": // payments_money_key
		return source{`(
			select sale_id as of_sale, order_id as of_order from payments
			where payment_id = ` + b.arg(f.PaymentID) + ` and outcome in ` + countedPayments + `
		) p join orders o on o.sale_id = p.of_sale and o.id = p.of_order`, []string{"true"}}
	case f.UserID != "":
		return everySale(ordersOfBuyer(b.arg(f.UserID)))
	case f.SaleID != "": // orders_pkey
		return source{"orders o", []string{"o.sale_id = " + b.arg(f.SaleID)}}
	}
	within := conditions{builder: b}
	within.must(!f.Since.IsZero(), acceptedSince, f.Since)
	within.must(!f.Until.IsZero(), acceptedBefore, f.Until)
	return source{"orders o", []string{within.sql()}} // orders_accepted_idx
}

const acceptedSince, acceptedBefore = "o.accepted_at >= ?", "o.accepted_at < ?"

// ordersOfBuyer reads three indexes, like latestOrderQuery.
func ordersOfBuyer(userID string) string {
	parts := make([]string, 0, 3)
	for _, statuses := range []string{
		`'awaiting_payment', 'confirmed', 'paid'`, `'cancelled', 'expired', 'rejected', 'refund_due'`,
		`'returned', 'refunded'`,
	} {
		parts = append(parts,
			`select * from orders where sale_id = every.id and user_id = `+userID+` and status in (`+statuses+`)`)
	}
	return strings.Join(parts, "\n\t\tunion all\n\t\t")
}

// after leaves out what the pages before have shown.
func after(f *lifecycle.OrderFilter, b *queryBuilder) []string {
	switch {
	case f.After.IsZero():
		return nil
	case f.SaleID != "":
		return []string{"o.id < " + b.arg(f.After.OrderID.String()) + "::text::uuid"}
	}
	return []string{fmt.Sprintf("(o.accepted_at, o.id) < (%s::timestamptz, %s::text::uuid)", b.arg(f.After.AcceptedAt),
		b.arg(f.After.OrderID.String()))}
}

// chosen is what an order must satisfy, whatever index it was found by.
func chosen(f *lifecycle.OrderFilter, b *queryBuilder) string {
	order := conditions{builder: b}
	order.must(f.SaleID != "", "o.sale_id = ?", f.SaleID)
	order.must(f.OrderID != "", "o.id = ?::text::uuid", f.OrderID)
	order.must(f.Number != 0, "o.number = ?", f.Number)
	order.must(f.UserID != "", "o.user_id = ?", f.UserID)
	order.must(len(f.Statuses) > 0, "o.status = any(?::text[])", statuses(f.Statuses))
	order.must(!f.Since.IsZero(), acceptedSince, f.Since)
	order.must(!f.Until.IsZero(), acceptedBefore, f.Until)
	// payments_order_idx, order by order: as exists(…) it would be turned into reading all payments at once.
	const paid = "coalesce((select true from payments p where p.order_id = o.id and p.sale_id = o.sale_id " +
		"and p.outcome in " + countedPayments + " and %s = ? limit 1), false)"
	order.must(f.PaymentID != "", fmt.Sprintf(paid, "p.payment_id"), f.PaymentID)
	order.must(f.Payment != "", fmt.Sprintf(paid, "p.outcome"), string(f.Payment))
	return order.sql()
}

var _ lifecycle.OrderList = (*Store)(nil)
