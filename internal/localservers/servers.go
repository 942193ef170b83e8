package localservers

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// Servers are a private Redis and a private Postgres in one den, and the programs that run beside them.
type Servers struct {
	Redis    *Redis
	Postgres *Postgres
	sandbox      *sandbox
}

// Start starts both servers and returns once both answer. ctx bounds the start only; Close ends them.
// ErrNoBinary is in the chain of the error when one of them is not installed.
func Start(ctx context.Context) (*Servers, error) {
	den, err := openSandbox()
	if err != nil {
		return nil, err
	}
	return startIn(ctx, den)
}

func startIn(ctx context.Context, den *sandbox) (*Servers, error) {
	s := &Servers{sandbox: den}
	starts, ctx := errgroup.WithContext(ctx)
	starts.Go(func() (err error) {
		if s.Redis, err = startRedisIn(ctx, den, RedisOptions{}); err != nil {
			return fmt.Errorf("private Redis: %w", err)
		}
		return nil
	})
	starts.Go(func() (err error) {
		if s.Postgres, err = startPostgresIn(ctx, den, PostgresOptions{}); err != nil {
			return fmt.Errorf("private Postgres: %w", err)
		}
		return nil
	})
	if err := starts.Wait(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Dir holds everything the servers write.
func (s *Servers) Dir() string { return s.sandbox.dir }

// Close ends the servers and whatever Run has started, and removes their files. Calling it twice is harmless.
func (s *Servers) Close() error {
	var errs []error
	for _, program := range s.sandbox.listPrograms() {
		errs = append(errs, program.Kill())
	}
	if s.Redis != nil {
		errs = append(errs, s.Redis.Close())
	}
	if s.Postgres != nil {
		errs = append(errs, s.Postgres.Close())
	}
	return errors.Join(append(errs, s.sandbox.close())...)
}
