package localservers

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// Servers are a private Redis and a private Postgres in one sandbox, and the programs that run beside them.
type Servers struct {
	Redis    *Redis
	Postgres *Postgres // that programs connect to
	Citus    *Citus    // of which Postgres is the coordinator; nil: it stands alone
	sandbox  *sandbox
}

// Start starts both servers and returns once both answer. ctx bounds the start only; Close ends them. ErrNoBinary is in
// the chain of the error when one of them is not installed.
func Start(ctx context.Context) (*Servers, error) { return start(ctx, settings{}) }

// Kind says what the servers are. The zero value is what Start starts.
type Kind struct {
	Clocks bool // their clocks can be moved by SetClock
	Citus  bool // three nodes of it in the place of Postgres
}

// StartKind is Start for servers of a kind.
func StartKind(ctx context.Context, k Kind) (*Servers, error) {
	return start(ctx, settings{clock: k.Clocks, citus: k.Citus})
}

func start(ctx context.Context, how settings) (*Servers, error) {
	box, err := openSandbox()
	if err != nil {
		return nil, err
	}
	return startIn(ctx, box, how)
}

func startIn(ctx context.Context, box *sandbox, how settings) (*Servers, error) {
	s := &Servers{sandbox: box}
	starts, ctx := errgroup.WithContext(ctx)
	starts.Go(func() (err error) {
		if s.Redis, err = startRedisIn(ctx, box, how); err != nil {
			return fmt.Errorf("private Redis: %w", err)
		}
		return nil
	})
	starts.Go(func() (err error) {
		if how.citus {
			if s.Citus, err = startCitusIn(ctx, box, how); err == nil {
				s.Postgres = s.Citus.Coordinator()
			}
			return err
		}
		if s.Postgres, err = startPostgresIn(ctx, box, how); err != nil {
			return fmt.Errorf("private Postgres: %w", err)
		}
		return nil
	})
	if err := starts.Wait(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Dir is the directory of everything that the servers write.
func (s *Servers) Dir() string { return s.sandbox.dir }

// Close ends the servers and the programs that Run has started, and removes their files. Calling it twice is harmless.
func (s *Servers) Close() error {
	var errs []error
	for _, program := range s.sandbox.listPrograms() {
		errs = append(errs, program.Kill())
	}
	if s.Redis != nil {
		errs = append(errs, s.Redis.Close())
	}
	switch {
	case s.Citus != nil:
		errs = append(errs, s.Citus.Close())
	case s.Postgres != nil:
		errs = append(errs, s.Postgres.Close())
	}
	return errors.Join(append(errs, s.sandbox.close())...)
}
