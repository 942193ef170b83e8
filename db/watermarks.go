package db

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

const (
	// isOver is true of a sale s that is over: a day after its last order could be paid, by this server's clock. Redis
	// need not have it any more, and what its books say is what Postgres says.
	isOver = `s.closes_at` + isLongPast

	// isLongPast follows a time at which a sale s closes.
	isLongPast = ` + s.payment_window <= now() - interval '24 hours'`

	// countsInGroup is true of a sale s in a limit group of which a sale is not over: what a buyer has in it counts there.
	countsInGroup = `s.limit_group <> '' and s.limit_group in (
		select s.limit_group from sales s where s.limit_group <> '' and not (` + isOver + `))`
)

// watermarksQuery lists what Redis must have: every sale that was loaded or about to be, or sold from, on each of its
// partitions, until a day after its last order can be paid. Older ones count while they have something to give back,
// and while they share a limit per buyer with one that is not over, unless they have left Redis for good.
// Sales are few, and releases_unapplied_idx, waitlist_ticket_key and waitlist_left_idx serve the rest.
const watermarksQuery = `
select s.id, p.partition, s.version, coalesce(w.seq, 0), coalesce(w.released, 0), coalesce(w.lost, 0),
	case when s.waitlist > 0 then greatest(
		(select max(ticket) from waitlist l where l.sale_id = s.id and l.partition = p.partition),
		(select max(left_ticket) from waitlist l
			where l.sale_id = s.id and l.partition = p.partition and left_ticket is not null),
		0) else 0 end,
	s.loaded_at is not null or w.sale_id is not null,
	coalesce(w.moved_in, 0), coalesce(w.moved_out, 0), coalesce(w.moves_settled, 0), s.moves > 0
from sales s
cross join lateral unnest(s.partitions) as p (partition)
left join watermarks w on w.sale_id = s.id and w.partition = p.partition
where s.retired_at is null and (s.loaded_at is not null or s.loading_at is not null or w.sale_id is not null) and (
	not (` + isOver + `)
	or (` + countsInGroup + `)
	or exists (select from releases r where r.sale_id = s.id and r.partition = p.partition and r.applied_at is null)
)
order by s.closes_at desc, s.id`

// Watermarks returns what Redis must at least have, the sales that close last first.
func (s *Store) Watermarks(ctx context.Context) ([]pipeline.Watermark, error) {
	return queryAll(ctx, s, "watermarks", func(row pgx.CollectableRow) (pipeline.Watermark, error) {
		var m pipeline.Watermark
		err := row.Scan(&m.SaleID, &m.Partition, &m.Version, &m.Accepted, &m.Released, &m.Lost, &m.Tickets, &m.Loaded,
			&m.MovedIn, &m.MovedOut, &m.MovesSettled, &m.Moved)
		return m, err
	}, watermarksQuery)
}

// recordRebuildQuery joins the generation that the verification began, as the statement that persists orders does: one
// that was overtaken (its connection was cut, its process stopped) writes nothing. Were its accepts counted as lost
// beside those of the verification that overtook it, as many that are lost later would not be missed.
//
// A rebuild that was begun and is not known to be done has a pending line. The next attempt takes its place, so that
// one which fails again and again is one line, with the number of attempts.
const recordRebuildQuery = `
with fence as (
	select number from join_generation() as number where number = $7
), counted as (
	insert into watermarks as w (sale_id, partition, lost)
	select $2::text, $3::smallint, $4::bigint from fence
	on conflict (sale_id, partition) do update set lost = w.lost + excluded.lost, updated_at = excluded.updated_at
), pending as (
	select id, detail from audit_log
	where sale_id = $2::text and action = $6::text and detail @> '{"pending": true}'
		and detail -> 'partition' = $5::text::jsonb -> 'partition'
	order by id desc limit 1
), again as (
	update audit_log a set at = now(), actor = $1::text, detail = $5::text::jsonb || jsonb_build_object(
		'pending', true, 'attempts', coalesce((p.detail ->> 'attempts')::integer, 1) + 1,
		'missing', coalesce((p.detail ->> 'missing')::bigint, 0) + $4::bigint)
	from pending p, fence
	where a.id = p.id
	returning a.id
), first as (
	insert into audit_log (actor, action, sale_id, detail)
	select $1::text, $6::text, $2::text, $5::text::jsonb || '{"pending": true}' from fence
	where not exists (select from pending)
	returning id
)
select id from again union all select id from first`

// RecordRebuild writes a rebuild that is about to be done into the audit log, and the accepts that it found lost into
// the watermarks, at once. Errors: pipeline.ErrStaleGeneration, when another verification began since; nothing was
// written.
func (s *Store) RecordRebuild(
	ctx context.Context, g pipeline.Generation, actor string, r pipeline.RebuildReport,
) error {
	detail, err := json.Marshal(r)
	if err != nil {
		return err
	}
	recorded, err := s.exec(ctx, "record a rebuild", recordRebuildQuery,
		actor, r.SaleID, int16(r.Partition), r.Missing, string(detail), rebuildAction(r.Cause), g)
	if err == nil && recorded == 0 {
		return pipeline.ErrStaleGeneration
	}
	return err
}

// FinishRebuild records that the rebuild of a sale on a partition which was recorded last is done.
func (s *Store) FinishRebuild(ctx context.Context, r pipeline.RebuildReport) error {
	at, err := json.Marshal(map[string]any{"partition": r.Partition, "pending": true})
	if err != nil {
		return err
	}
	_, err = s.exec(ctx, "record the end of a rebuild", `
		update audit_log set detail = detail - 'pending' where id = (
			select id from audit_log where sale_id = $1 and action = $2 and detail @> $3::text::jsonb
			order by id desc limit 1
		)`, r.SaleID, rebuildAction(r.Cause), string(at))
	return err
}

// rebuildAction names a rebuild for the audit log.
func rebuildAction(cause string) string {
	if cause == "repair" {
		return "repair"
	}
	return "rebuild"
}
