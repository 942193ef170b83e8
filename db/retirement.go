package db

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

// isToRetire is true of a sale s whose last order could be paid before the time $1. One of which an order awaits its
// payment still, because it was given more time, is left for later. So is one that owes units to Redis, or of
// which units are on their way between its partitions.
// orders_live_buyer_key and releases_unapplied_idx serve it.
const isToRetire = `s.retired_at is null and s.reduce_to is null and ` + isOver + `
		and s.closes_at + s.payment_window + $1::interval <= now()
		and not exists (select from orders o where o.sale_id = s.id and o.status = 'awaiting_payment')
		and not exists (select from releases r where r.sale_id = s.id and r.applied_at is null)
		and not exists (select from unit_moves m where m.sale_id = s.id and m.state in ('intended', 'taken'))`

// salesToRetireQuery finds them, the oldest first. One of a limit group of which another sale is not over is left for
// later: what its buyers have counts there. sales has few rows.
const salesToRetireQuery = `
select s.id from sales s
where ` + isToRetire + ` and not (` + countsInGroup + `)
order by s.closes_at
limit $2`

// retireQuery retires one of them, if it still is one. What something else has locked is left for later.
const retireQuery = `
with due as (
	select s.id from sales s
	where s.id = $2 and ` + isToRetire + `
	for no key update skip locked
), retired as (
	update sales s set retired_at = now(), updated_at = now()
	from due where s.id = $2 and s.id = due.id
	returning s.id
), logged as (
	insert into audit_log (actor, action, sale_id, detail)
	select '` + defaultActor + `', 'retire', id, jsonb_build_object('after_seconds', extract(epoch from $1::interval)::bigint)
	from retired
)
select id from retired`

// RetireSales notes of up to limit sales that they leave Redis: those that have been over for so long, at least a day.
// Redis is to be cleared of them next, see SalesToClear. It returns their ids. Any number of calls may run at once.
func (s *Store) RetireSales(ctx context.Context, after time.Duration, limit int) ([]string, error) {
	due, err := queryAll(ctx, s, "sales to retire", pgx.RowTo[string], salesToRetireQuery, after, limit)
	var retired []string
	for _, sale := range due {
		found, err := queryAll(ctx, s, "retire sale "+sale, pgx.RowTo[string], retireQuery, after, sale)
		if err != nil {
			return retired, err
		}
		retired = append(retired, found...)
	}
	return retired, err
}

// SalesToClear returns up to limit retired sales that Redis may have since a verification before this generation.
func (s *Store) SalesToClear(ctx context.Context, g pipeline.Generation, limit int) ([]*pipeline.Sale, error) {
	scan := func(row pgx.CollectableRow) (*pipeline.Sale, error) {
		sale, err := scanSale(row)
		return &sale, err
	}
	return queryConfirmed(ctx, s, "retired sales", scan, `
		select `+saleColumns+` from sales
		where retired_at is not null and coalesce(cleared_in, 0) < $1
		order by retired_at limit $2`, g, limit)
}

// MarkCleared notes that Redis was cleared of a retired sale in a generation.
func (s *Store) MarkCleared(ctx context.Context, id string, g pipeline.Generation) error {
	_, err := s.exec(ctx, "mark a retired sale", `
		update sales set cleared_in = greatest(coalesce(cleared_in, 0), $2) where id = $1 and retired_at is not null`, id, g)
	return err
}

// SettleRetiredReleases marks the releases of retired sales as applied: Redis has no stock and no slots of them to give
// anything back to. The sale's counter has their units already. It relies on releases_unapplied_idx, which is as small
// as the backlog.
func (s *Store) SettleRetiredReleases(ctx context.Context) error {
	owing, err := queryAll(ctx, s, "releases of retired sales", pgx.RowTo[string], `
		select distinct r.sale_id from releases r join sales s on s.id = r.sale_id
		where s.retired_at is not null and r.applied_at is null`)
	for _, sale := range owing {
		if _, err := s.exec(ctx, "settle releases of retired sales", `
			update releases r set applied_at = now(), given_back = false
			from sales s
			where s.id = $1 and r.sale_id = $1 and s.retired_at is not null and r.applied_at is null`, sale); err != nil {
			return err
		}
	}
	return err
}
