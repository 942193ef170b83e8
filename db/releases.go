package db

import (
	"context"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

// UnappliedReleases returns up to limit releases that Redis is not known to have, oldest first within a sale and partition.
// It relies on releases_unapplied_idx.
func (s *Store) UnappliedReleases(ctx context.Context, limit int) ([]pipeline.Release, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, `
		select sale_id, order_id::text, sequence, user_id, partition from releases
		where applied_at is null
		order by sale_id, partition, created_at
		limit $1`, limit)
	if err != nil {
		return nil, wrap(err, "unapplied releases")
	}
	releases, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (pipeline.Release, error) {
		var r pipeline.Release
		err := row.Scan(&r.SaleID, &r.OrderID, &r.Sequence, &r.UserID, &r.Partition)
		return r, err
	})
	return releases, wrap(err, "unapplied releases")
}

// MarkReleased notes that Redis has these releases. One that is marked keeps its first mark.
func (s *Store) MarkReleased(ctx context.Context, releases []pipeline.Release) error {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	sales, orders := make([]string, len(releases)), make([]string, len(releases))
	sequences, given := make([]int64, len(releases)), make([]bool, len(releases))
	for i, r := range releases {
		sales[i], orders[i], sequences[i], given[i] = r.SaleID, r.OrderID, r.Sequence, r.GivenBack
	}
	_, err := s.pool.Exec(ctx, `
		update releases r set applied_at = now(), given_back = i.given_back
		from unnest($1::text[], $2::text[], $3::bigint[], $4::boolean[]) as i (sale_id, order_id, sequence, given_back)
		where r.sale_id = i.sale_id and r.order_id = i.order_id::uuid and r.sequence = i.sequence and r.applied_at is null`,
		sales, orders, sequences, given)
	return wrap(err, "mark releases")
}
