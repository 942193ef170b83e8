package db

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/journal"
)

// journalsKept is for how long the journal of a process is remembered that died and whose journal nobody took over.
const journalsKept = 24 * time.Hour

// TouchJournals says that journals are in the hands of a living process. New ones are added, and those that were not
// seen for a day are removed: nobody waits for them any more. What they reported remains for audits, unless all of it
// is settled.
func (s *Store) TouchJournals(ctx context.Context, ids []string, host string) error {
	ctx, cancel := deadline(ctx, callTimeout) // for all statements
	defer cancel()
	settled, err := s.settledReports(ctx, ids)
	if err != nil {
		return err
	}
	_, err = s.exec(ctx, "announce journals", `
		with gone as (
			delete from accept_journals where seen_at < now() - $2::interval and not id = any($1::text[]::uuid[])
		), settled as (
			delete from journal_reports r where r.journal_id = any($4::text[]::uuid[]) and `+isAbandoned+`
		)
		insert into accept_journals (id, host) select id::uuid, $3 from unnest($1::text[]) as i (id) order by 1
		on conflict (id) do update set seen_at = now(), host = excluded.host`, ids, journalsKept, host, settled)
	return err
}

// ForgetJournals removes journals that hold nothing any more, and what they have reported.
func (s *Store) ForgetJournals(ctx context.Context, ids []string) error {
	_, err := s.exec(ctx, "forget journals", `
		with reports as (delete from journal_reports where journal_id = any($1::text[]::uuid[]))
		delete from accept_journals where id = any($1::text[]::uuid[])`, ids)
	return err
}

// CoverPartitions records that all that journals hold of some partitions was submitted to Redis again since a
// generation began. What was recorded of a later generation remains. KindConflict: a journal is not known here;
// announce it first.
func (s *Store) CoverPartitions(
	ctx context.Context, ids []string, g pipeline.Generation, partitions []pipeline.Partition,
) error {
	covered, err := s.exec(ctx, "record covered partitions", `
		insert into covered_partitions as c (journal_id, partition, generation)
		select j.id, p.partition, $2
		from accept_journals j cross join unnest($3::smallint[]) as p (partition)
		where j.id = any($1::text[]::uuid[])
		order by j.id, p.partition
		on conflict (journal_id, partition) do update set generation = greatest(c.generation, excluded.generation)`,
		ids, g, smallints(partitions))
	if err == nil && covered != int64(len(ids)*len(partitions)) {
		return pipeline.Errorf(pipeline.KindConflict, "an accept journal is not known to Postgres")
	}
	return err
}

// UncoveredPartitions returns those of some partitions that are not covered by every one of some journals since a
// generation began.
func (s *Store) UncoveredPartitions(
	ctx context.Context, ids []string, g pipeline.Generation, partitions []pipeline.Partition,
) ([]pipeline.Partition, error) {
	return queryAll(ctx, s, "uncovered partitions", pgx.RowTo[pipeline.Partition], `
		select p.partition from unnest($3::smallint[]) as p (partition)
		where (
			select count(*) from covered_partitions c
			where c.journal_id = any($1::text[]::uuid[]) and c.partition = p.partition and c.generation >= $2
		) < cardinality($1::text[])`, ids, g, smallints(partitions))
}

// UncoveredJournals returns the journals that have not covered all of some partitions since a generation began.
func (s *Store) UncoveredJournals(
	ctx context.Context, g pipeline.Generation, partitions []pipeline.Partition,
) ([]journal.Unanswered, error) {
	return queryAll(ctx, s, "uncovered journals", func(row pgx.CollectableRow) (journal.Unanswered, error) {
		var j journal.Unanswered
		err := row.Scan(&j.ID, &j.Host, &j.Silent)
		return j, err
	}, `
		select j.id::text, j.host, greatest(clock_timestamp() - j.seen_at, j.seen_at - clock_timestamp())
		from accept_journals j
		where (
			select count(*) from covered_partitions c
			where c.journal_id = j.id and c.partition = any($2::smallint[]) and c.generation >= $1
		) < cardinality($2::smallint[])
		order by j.seen_at`, g, smallints(partitions))
}
