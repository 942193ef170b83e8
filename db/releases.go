package db

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

const releaseColumns = `sale_id, order_id::text, sequence, user_id, partition, withdrawn`

func scanRelease(row pgx.CollectableRow) (pipeline.Release, error) {
	var r pipeline.Release
	err := row.Scan(&r.SaleID, &r.OrderID, &r.Sequence, &r.UserID, &r.Partition, &r.Withdrawn)
	return r, err
}

// UnappliedReleases returns up to limit releases that Redis is not known to have, starting after a group, group by
// group, oldest first within each. It relies on releases_unapplied_idx.
func (s *Store) UnappliedReleases(
	ctx context.Context, after pipeline.SalePartition, limit int,
) ([]pipeline.Release, error) {
	return queryConfirmed(ctx, s, "unapplied releases", scanRelease, `
		select `+releaseColumns+` from releases
		where applied_at is null and (sale_id, partition) > ($1, $2)
		order by sale_id, partition, created_at
		limit $3`, after.SaleID, after.Partition, limit)
}

// LatestReleases returns up to limit releases of a sale on a partition that Redis is known to have, the latest first.
// It reads all of the sale's releases, for which releases_pkey serves: it is asked when Redis is verified anew.
func (s *Store) LatestReleases(ctx context.Context, at pipeline.SalePartition, limit int) ([]pipeline.Release, error) {
	return queryAll(ctx, s, "latest releases", scanRelease, `
		select `+releaseColumns+` from releases
		where sale_id = $1 and partition = $2 and applied_at is not null
		order by applied_at desc limit $3`, at.SaleID, at.Partition, limit)
}

// OrderReleases returns the releases of an order that Redis is not known to have. An id that is no UUID is no order's.
// It relies on releases_pkey.
func (s *Store) OrderReleases(ctx context.Context, saleID, orderID string) ([]pipeline.Release, error) {
	id, err := uuid.Parse(orderID)
	if err != nil || !pipeline.ValidSaleID(saleID) {
		return nil, nil //nolint:nilerr // what is no UUID is no order's id, and has no releases
	}
	return queryConfirmed(ctx, s, "releases of an order", scanRelease, `
		select `+releaseColumns+` from releases
		where sale_id = $1 and order_id = $2 and applied_at is null
		order by sequence`, saleID, id)
}

// MarkReleasesApplied marks releases as applied to Redis, and counts those by which Redis gave something back. One that
// is marked keeps its first mark and is not counted again.
func (s *Store) MarkReleasesApplied(ctx context.Context, releases []pipeline.Release) error {
	sales, orders := make([]string, len(releases)), make([]string, len(releases))
	sequences, given := make([]int64, len(releases)), make([]bool, len(releases))
	for i, r := range releases {
		sales[i], orders[i], sequences[i], given[i] = r.SaleID, r.OrderID, r.Sequence, r.GivenBack
	}
	_, err := s.exec(ctx, "mark releases", `
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
		on conflict (sale_id, partition) do update
		set released = w.released + excluded.released, updated_at = excluded.updated_at`,
		sales, orders, sequences, given)
	return err
}
