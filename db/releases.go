package db

import (
	"context"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

// UnappliedReleases returns up to limit releases that Redis is not known to have, group by group behind one, oldest first
// within each. It relies on releases_unapplied_idx.
func (s *Store) UnappliedReleases(ctx context.Context, after pipeline.ReleaseGroup, limit int) ([]pipeline.Release, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, `
		select sale_id, order_id::text, sequence, user_id, partition from releases
		where applied_at is null and (sale_id, partition) > ($1, $2)
		order by sale_id, partition, created_at
		limit $3`, after.SaleID, after.Partition, limit)
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

// MarkReleased notes that Redis has these releases, and counts those by which it gave something back. One that is marked
// keeps its first mark and is not counted again.
func (s *Store) MarkReleased(ctx context.Context, releases []pipeline.Release) error {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	sales, orders := make([]string, len(releases)), make([]string, len(releases))
	sequences, given := make([]int64, len(releases)), make([]bool, len(releases))
	for i, r := range releases {
		sales[i], orders[i], sequences[i], given[i] = r.SaleID, r.OrderID, r.Sequence, r.GivenBack
	}
	_, err := s.pool.Exec(ctx, `
		with marked as (
			update releases r set applied_at = now(), given_back = i.given_back
			from unnest($1::text[], $2::text[], $3::bigint[], $4::boolean[]) as i (sale_id, order_id, sequence, given_back)
			where r.sale_id = i.sale_id and r.order_id = i.order_id::uuid and r.sequence = i.sequence and r.applied_at is null
			returning r.sale_id, r.partition, r.given_back
		)
		insert into watermarks as w (sale_id, partition, released)
		select sale_id, partition, count(*) from marked where given_back
		group by sale_id, partition
		order by sale_id, partition
		on conflict (sale_id, partition) do update set released = w.released + excluded.released, updated_at = now()`,
		sales, orders, sequences, given)
	return wrap(err, "mark releases")
}
