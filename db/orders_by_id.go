package db

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

// ordersByIDQuery relies on orders_pkey: one look for each order.
const ordersByIDQuery = `
select ` + orderColumns + ` from unnest($1::text[], $2::text[]) as i (of_sale, of_id)
cross join lateral (select * from orders where sale_id = i.of_sale and id = i.of_id::uuid limit 1) o`

// OrdersByID returns those of the named orders that have a row, in no particular order. Some hundred at once cost little more
// than one. What can't be an order's name has no row. Errors: KindUnavailable.
func (s *Store) OrdersByID(ctx context.Context, keys []pipeline.OrderKey) ([]pipeline.Order, error) {
	sales, ids := make([]string, 0, len(keys)), make([]string, 0, len(keys))
	for _, key := range keys {
		if id, err := uuid.Parse(key.OrderID); err == nil && pipeline.ValidSaleID(key.SaleID) {
			sales, ids = append(sales, key.SaleID), append(ids, id.String())
		}
	}
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, ordersByIDQuery, sales, ids)
	if err != nil {
		return nil, wrap(err, "orders")
	}
	orders, err := pgx.CollectRows(rows, scanOrder)
	return orders, wrap(err, "orders")
}
