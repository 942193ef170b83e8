package db

import (
	"context"

	"sluice/pipeline"
)

// Installation returns the id of this database's installation, which never changes.
func (s *Store) Installation(ctx context.Context) (string, error) {
	return queryValue[string](ctx, s, "installation", `select id::text from installation_id`)
}

// EnsurePartitions stores the number of partitions if none is stored yet, and returns the one that is: it is fixed at
// the first use, because it decides where every sale's keys are.
func (s *Store) EnsurePartitions(ctx context.Context, n int) (int, error) {
	if n < 1 || n > pipeline.MaxPartitions {
		return 0, pipeline.Errorf(pipeline.KindInvalid, "%d partitions: use 1 to %d", n, pipeline.MaxPartitions)
	}
	const insert = `insert into installation (partitions) values ($1) on conflict do nothing`
	if _, err := s.exec(ctx, "partitions", insert, n); err != nil {
		return 0, err
	}
	// A statement of its own: another process may have written the row after the first one looked.
	return queryValue[int](ctx, s, "partitions", `select partitions from installation`)
}
