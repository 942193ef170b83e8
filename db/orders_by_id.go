package db

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

// ordersByIDQuery relies on orders_pkey: one lookup for each order of a sale.
const ordersByIDQuery = `
select ` + orderColumns + ` from unnest($2::text[]) as i (of_id)
cross join lateral (select * from orders where sale_id = $1 and id = i.of_id::uuid limit 1) o`

// OrdersByID returns those of the named orders that have a row, in no particular order. Some hundred at once cost
// little more than one. What can't be an order's name has no row. Errors: KindUnavailable.
func (s *Store) OrdersByID(ctx context.Context, keys []pipeline.OrderKey) ([]pipeline.Order, error) {
	return queryBySale(ctx, s, "orders", scanOrder, ordersByIDQuery, possibleOrders(keys))
}

// possibleOrders are the names that can be an order's, with their ids as Postgres writes them.
func possibleOrders(keys []pipeline.OrderKey) []pipeline.OrderKey {
	possible := make([]pipeline.OrderKey, 0, len(keys))
	for _, key := range keys {
		if id, err := uuid.Parse(key.OrderID); err == nil && pipeline.ValidSaleID(key.SaleID) {
			possible = append(possible, pipeline.OrderKey{SaleID: key.SaleID, OrderID: id.String()})
		}
	}
	return possible
}

func idsOf(keys []pipeline.OrderKey) []string {
	ids := make([]string, len(keys))
	for i, key := range keys {
		ids[i] = key.OrderID
	}
	return ids
}

// queryBySale runs a statement for the orders of each sale: its arguments are the sale, and the ids. Mostly that is one
// sale, or few; many are still one round trip. An error names the subject.
func queryBySale[T any](
	ctx context.Context, s *Store, subject string, scan pgx.RowToFunc[T], query string, keys []pipeline.OrderKey,
) ([]T, error) {
	bySale := map[string][]string{}
	for _, key := range keys {
		bySale[key.SaleID] = append(bySale[key.SaleID], key.OrderID)
	}
	if len(bySale) == 1 {
		return queryAll(ctx, s, subject, scan, query, pgx.QueryExecModeCacheDescribe, keys[0].SaleID, bySale[keys[0].SaleID])
	}
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	var values []T
	batch := &pgx.Batch{}
	for sale, ids := range bySale {
		batch.Queue(query, sale, ids).Query(func(rows pgx.Rows) error {
			found, err := pgx.CollectRows(rows, scan)
			values = append(values, found...)
			return err
		})
	}
	return values, wrap(s.pool.SendBatch(ctx, batch).Close(), subject)
}

// orderNames splits the names of orders into columns, and counts those that can't be an order's.
func orderNames(keys []pipeline.OrderKey) (sales, ids []string, impossible int) {
	sales, ids = make([]string, 0, len(keys)), make([]string, 0, len(keys))
	for _, key := range keys {
		if id, err := uuid.Parse(key.OrderID); err == nil && pipeline.ValidSaleID(key.SaleID) {
			sales, ids = append(sales, key.SaleID), append(ids, id.String())
		}
	}
	return sales, ids, len(keys) - len(ids)
}

// knownOrdersQuery relies on orders_pkey: one lookup for each id.
const knownOrdersQuery = `
select o.id::text from unnest($2::text[]) as i (id)
cross join lateral (select id from orders where sale_id = $1 and id = i.id::uuid limit 1) o`

// KnownOrders returns those of a sale's orders that have a row, in any status.
func (s *Store) KnownOrders(ctx context.Context, saleID string, orderIDs []string) (map[string]bool, error) {
	return s.which(ctx, "known orders", knownOrdersQuery, saleID, orderIDs)
}

// which returns those of a sale's orders that a query finds.
func (s *Store) which(
	ctx context.Context, subject, query, saleID string, orderIDs []string,
) (map[string]bool, error) {
	ids, err := queryConfirmed(ctx, s, subject, pgx.RowTo[string], query, pgx.QueryExecModeCacheDescribe, saleID, orderIDs)
	if err != nil {
		return nil, err
	}
	found := make(map[string]bool, len(ids))
	for _, id := range ids {
		found[id] = true
	}
	return found, nil
}

// uuidsOf leaves out what is no UUID, and so no order's id.
func uuidsOf(texts []string) []string {
	ids := make([]string, 0, len(texts))
	for _, text := range texts {
		if id, err := uuid.Parse(text); err == nil {
			ids = append(ids, id.String())
		}
	}
	return ids
}
