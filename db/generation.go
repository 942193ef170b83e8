package db

import (
	"context"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/installation"
)

// Generation returns the present generation.
func (s *Store) Generation(ctx context.Context) (pipeline.Generation, error) {
	return queryValue[pipeline.Generation](ctx, s, "generation", `select number from generation`)
}

// Verifications returns the present generation, the one in which the latest verification of each partition began, and
// whether this server was examined.
func (s *Store) Verifications(ctx context.Context) (installation.Verifications, error) {
	type verification struct {
		present, begun pipeline.Generation
		partition      pipeline.Partition
		examined       bool
		replaced       bool
	}
	found := installation.Verifications{Begun: map[pipeline.Partition]pipeline.Generation{}}
	rows, err := queryAll(ctx, s, "verifications", func(row pgx.CollectableRow) (v verification, err error) {
		return v, row.Scan(&v.present, &v.partition, &v.begun, &v.examined, &v.replaced)
	}, `
		select g.number, coalesce(v.partition, -1), coalesce(v.generation, 0),
			(select exists (select from examined_server where identity = server_identity())),
			(select not server_is_examined())
		from (select number from generation limit 1) g left join verified_partitions v on true`)
	if err != nil {
		return found, err
	}
	for _, v := range rows {
		found.Present, found.Examined, found.Replaced = v.present, v.examined, v.replaced
		if v.begun > 0 {
			found.Begun[v.partition] = v.begun
		}
	}
	return found, nil
}

// NextGeneration begins a new generation, in which some partitions are verified. It waits for the batches that are
// being persisted, at most some seconds; when it returns, nothing that was fetched before is written any more.
// Repeating it does no harm.
func (s *Store) NextGeneration(ctx context.Context, partitions []pipeline.Partition) (pipeline.Generation, error) {
	return queryValue[pipeline.Generation](ctx, s, "next generation", `
		with begun as materialized (
			select begin_generation() as number
		), noted as (
			insert into verified_partitions as v (partition, generation)
			select p.partition, begun.number from begun, unnest($1::smallint[]) as p (partition)
			on conflict (partition) do update set generation = greatest(v.generation, excluded.generation)
		)
		select number from begun`, smallints(partitions))
}
