package db

import (
	"context"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

// Generation returns the present generation.
func (s *Store) Generation(ctx context.Context) (pipeline.Generation, error) {
	return queryValue[pipeline.Generation](ctx, s, "generation", `select number from generation`)
}

// Verifications returns the present generation, and for each partition the one in which its latest verification began.
func (s *Store) Verifications(
	ctx context.Context,
) (pipeline.Generation, map[pipeline.Partition]pipeline.Generation, error) {
	type verification struct {
		present, begun pipeline.Generation
		partition      pipeline.Partition
	}
	rows, err := queryAll(ctx, s, "verifications", func(row pgx.CollectableRow) (v verification, err error) {
		return v, row.Scan(&v.present, &v.partition, &v.begun)
	}, `
		select g.number, coalesce(v.partition, -1), coalesce(v.generation, 0)
		from generation g left join verified_partitions v on true`)
	if err != nil {
		return 0, nil, err
	}
	var present pipeline.Generation
	begun := make(map[pipeline.Partition]pipeline.Generation, len(rows))
	for _, v := range rows {
		present = v.present
		if v.begun > 0 {
			begun[v.partition] = v.begun
		}
	}
	return present, begun, nil
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
