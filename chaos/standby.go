package chaos

import (
	"context"
	"errors"
	"strings"

	"sluice/internal/localservers"
)

// postgresPair is a Postgres whose commits wait for its standby.
type postgresPair struct{ primary, standby *localservers.Postgres }

// currentPostgres is the server that takes writes now.
func (s *system) currentPostgres() *localservers.Postgres {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.postgres.primary
}

func (s *system) currentStandby() *localservers.Postgres {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.postgres.standby
}

// node is one of those that have the sales.
func (s *system) node(of step) *localservers.Postgres {
	nodes := s.servers.Citus.Workers()
	return nodes[of.Random%uint64(len(nodes))]
}

// openStandby gives the primary a standby that has everything a commit has answered.
func (s *system) openStandby(ctx context.Context) error {
	primary := s.currentPostgres()
	standby, err := primary.StartStandby(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.postgres.standby = standby
	s.mu.Unlock()
	return primary.AwaitStandby(ctx)
}

// promote kills the primary, never to come back, has the standby take its place, and gives that one a standby when the
// fault is over. Until then its commits wait.
func (s *system) promote() fault {
	undo := nothing
	return fault{
		do: func(ctx context.Context) (int, error) {
			primary, standby := s.currentPostgres(), s.currentStandby()
			if err := primary.Kill(); err != nil {
				return 0, err
			}
			if err := standby.Promote(ctx); err != nil {
				return 0, errors.Join(err, primary.Restart(ctx))
			}
			undo = func(ctx context.Context) (int, error) { return 0, s.openStandby(ctx) }
			s.mu.Lock()
			s.postgres = postgresPair{primary: standby}
			s.mu.Unlock()
			return hit(s.leadTo(standby))
		},
		undo: func(ctx context.Context) (int, error) { return undo(ctx) },
	}
}

// leadTo has every connection to Postgres lead to another one.
func (s *system) leadTo(server *localservers.Postgres) error {
	var errs []error
	for name, link := range s.links {
		if strings.HasSuffix(name, ">postgres") {
			errs = append(errs, link.Retarget(server.URL()))
		}
	}
	return errors.Join(errs...)
}
