package db

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

// balanceQuery reads one sale's row with its watermarks: its cost does not depend on the number of orders.
const balanceQuery = `
select s.total, s.sold, s.withdrawn, s.version,
	coalesce(array_agg(w.partition) filter (where w.partition is not null), '{}'),
	coalesce(array_agg(w.seq) filter (where w.partition is not null), '{}')
from sales s left join watermarks w on w.sale_id = s.id
where s.id = $1
group by s.id`

// balanceReleasesQuery relies on releases_unapplied_idx.
const balanceReleasesQuery = `
select order_id::text, user_id, case when withdrawn then 0 else quantity end, partition from releases
where sale_id = $1 and applied_at is null limit $2`

// Balance returns what Postgres counts of a sale, with up to the given number of its releases that are not applied, all
// of it at one instant. Known are those of the given orders that have a row, in any status. No lock is taken. Errors:
// KindNotFound.
func (s *Store) Balance(ctx context.Context, saleID string, orderIDs []string, releases int) (pipeline.Balance, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	b := pipeline.Balance{Watermarks: map[pipeline.Partition]int64{}, Known: map[string]bool{}}
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, s.pool, options, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue(balanceQuery, saleID).QueryRow(func(row pgx.Row) error { return scanBalance(row, &b) })
		batch.Queue(balanceReleasesQuery, saleID, releases).Query(func(rows pgx.Rows) (err error) {
			b.Unapplied, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (o pipeline.LedgerOrder, err error) {
				err = row.Scan(&o.OrderID, &o.UserID, &o.Quantity, &o.Partition)
				return o, err
			})
			return err
		})
		if ids := uuidsOf(orderIDs); len(ids) > 0 {
			batch.Queue(knownOrdersQuery, saleID, ids).Query(func(rows pgx.Rows) error {
				var id string
				_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
					b.Known[id] = true
					return nil
				})
				return err
			})
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return b, unknownSale(saleID)
	}
	return b, wrap(err, "balance of sale "+saleID)
}

func scanBalance(row pgx.Row, b *pipeline.Balance) error {
	var partitions []int16
	var sequences []int64
	if err := row.Scan(&b.Total, &b.Sold, &b.Withdrawn, &b.Version, &partitions, &sequences); err != nil {
		return err
	}
	for i, p := range partitions {
		b.Watermarks[pipeline.Partition(p)] = sequences[i]
	}
	return nil
}
