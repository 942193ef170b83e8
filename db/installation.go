package db

import (
	"context"

	"sluice/pipeline"
)

// Installation returns the id of this database's installation, which never changes.
func (s *Store) Installation(ctx context.Context) (string, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	var id string
	err := s.pool.QueryRow(ctx, `select id::text from installation_id`).Scan(&id)
	return id, wrap(err, "installation")
}

// EnsurePartitions stores the number of partitions if none is stored yet, and returns the one that is: it is fixed at the
// first use, because it decides where every sale's keys are.
func (s *Store) EnsurePartitions(ctx context.Context, n int) (int, error) {
	if n < 1 || n > pipeline.MaxPartitions {
		return 0, pipeline.Errorf(pipeline.KindInvalid, "%d partitions: use 1 to %d", n, pipeline.MaxPartitions)
	}
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	_, err := s.pool.Exec(ctx, `insert into installation (partitions) values ($1) on conflict do nothing`, n)
	if err != nil {
		return 0, wrap(err, "partitions")
	}
	// A statement of its own: the row may have been written by another process after the first one looked.
	var stored int
	err = s.pool.QueryRow(ctx, `select partitions from installation`).Scan(&stored)
	return stored, wrap(err, "partitions")
}
