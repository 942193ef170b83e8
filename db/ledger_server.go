package db

import (
	"context"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/installation"
)

// markStoredQuery relies on watermarks_pkey.
const markStoredQuery = `
select w.sale_id, w.partition, w.stored
from (select distinct sale_id, partition from unnest($1::text[], $2::bigint[]) as i (sale_id, partition)) i
join watermarks w on w.sale_id = i.sale_id and w.partition = i.partition`

// markStored adds the marks of accepts whose rows were there before.
func (s *Store) markStored(ctx context.Context, accepts []accept, marks map[pipeline.SalePartition]int64) error {
	columns := newAcceptColumns(len(accepts))
	for _, a := range accepts {
		columns.add(a)
	}
	rows, err := s.pool.Query(ctx, markStoredQuery, columns.sales, columns.partitions)
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
