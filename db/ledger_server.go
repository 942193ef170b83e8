package db

import (
	"context"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/installation"
)

// markStoredQuery relies on watermarks_pkey.
const markStoredQuery = `
select sale_id, partition, stored from watermarks where sale_id = $1 and partition = any($2::bigint[]::smallint[])`

// markStored adds the marks of accepts of a sale whose rows were there before.
func (s *Store) markStored(
	ctx context.Context, columns *acceptColumns, marks map[pipeline.SalePartition]int64,
) error {
	rows, err := s.pool.Query(ctx, markStoredQuery, columns.sale, columns.partitions)
	if err != nil {
		return wrap(err, "read watermarks")
	}
	var at pipeline.SalePartition
	var stored int64
	_, err = pgx.ForEachRow(rows, []any{&at.SaleID, &at.Partition, &stored}, func() error {
		marks[at] = max(marks[at], stored)
		return nil
	})
	return wrap(err, "read watermarks")
}

// fenced says why a statement that persists found nothing to insert.
func (s *Store) fenced(ctx context.Context) error {
	examined, err := s.serverExamined(ctx)
	switch {
	case err != nil:
		return err
	case !examined:
		return installation.ErrUnexamined
	default:
		return pipeline.ErrStaleGeneration
	}
}

// serverExamined reports whether orders may be stored on the server that answers: whether it is the one that was
// examined last, or none ever was.
func (s *Store) serverExamined(ctx context.Context) (bool, error) {
	return queryValue[bool](ctx, s, "server", `select server_is_examined()`)
}
