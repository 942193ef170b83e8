package db

import (
	"context"
	"time"
)

// Clock is the time by Postgres' clock. Errors: KindUnavailable.
func (s *Store) Clock(ctx context.Context) (time.Time, error) {
	return queryValue[time.Time](ctx, s, "read the clock", `select clock_timestamp()`)
}
