package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/db"
	"sluice/internal/config"
	"sluice/internal/process"
	"sluice/pipeline"
	"sluice/pipeline/installation"
)

const (
	// attemptTimeout bounds one try to reach a server.
	attemptTimeout = 3 * time.Second
	// commandTimeout bounds one question to a server that is there.
	commandTimeout = 5 * time.Second
	// poolSize is how many connections a command may need: it asks one thing after the other.
	poolSize = 2
)

// stores are the open connections of a command. Unlike a server it also accepts a Redis that is not fit for orders:
// that is when an operator needs it.
type stores struct {
	cfg      config.Config
	redis    redis.UniversalClient
	postgres *db.Store
	keys     pipeline.Keys
}

// parts are those of the pipeline over the stores.
func (s *stores) parts(log *slog.Logger) *process.Parts {
	p := process.NewParts(s.redis, s.postgres, s.cfg.Partitions, log)
	p.Keys = s.keys
	return p
}

// withStores does work on both servers, once it is known how many partitions the installation has.
func (a *app) withStores(work func(*stores) error) error {
	return a.connected(func(s *stores) error {
		if err := s.connectPostgres(a.ctx); err != nil {
			return err
		}
		if err := s.findPartitions(a.ctx, a.settings.partitionsGiven()); err != nil {
			return err
		}
		if err := s.checkInstallation(a.ctx); err != nil {
			return err
		}
		return work(s)
	})
}

// withSale does work on one sale, as Postgres defines it.
func (a *app) withSale(id string, work func(*stores, *pipeline.Sale) error) error {
	return a.withStores(func(s *stores) error {
		sale, err := s.postgres.Sale(a.ctx, id)
		if err != nil {
			return unknownSale(err)
		}
		return work(s, sale)
	})
}

// checkInstallation refuses a Redis that belongs to another database: whatever is reported of the two together would be
// wrong.
func (s *stores) checkInstallation(ctx context.Context) error {
	id, err := s.postgres.Installation(ctx)
	if err != nil {
		return err
	}
	return installation.Check(ctx, s.redis, s.keys, s.cfg.Partitions, id)
}

// withRedis is for commands that show what is in Redis only: they must work while Postgres is away. Then the number of
// partitions is the setting, or its default.
func (a *app) withRedis(work func(*stores) error) error {
	return a.connected(func(s *stores) error {
		err := s.findPartitions(a.ctx, a.settings.partitionsGiven())
		switch {
		case pipeline.KindOf(err) == pipeline.KindUnavailable:
			sayf(a.err, "sluice: %s; looking at %d partitions", sentence(err), s.cfg.Partitions)
		case err != nil:
			return err
		}
		return work(s)
	})
}

// withPostgres is for commands that need no Redis.
func (a *app) withPostgres(work func(*stores) error) error {
	defaults := commandDefaults()
	defaults["REDIS_URL"] = "redis://not-needed"
	cfg, err := a.settings.load(defaults)
	if err != nil {
		return err
	}
	s := &stores{cfg: cfg}
	defer s.close()
	if err := s.connectPostgres(a.ctx); err != nil {
		return err
	}
	return work(s)
}

// connected does work with a connection to Redis, and closes afterwards whatever is open.
func (a *app) connected(work func(*stores) error) error {
	cfg, err := a.settings.load(commandDefaults())
	if err != nil {
		return err
	}
	s := &stores{cfg: cfg, keys: pipeline.DefaultKeys}
	defer s.close()
	if err := s.connectRedis(a.ctx); err != nil {
		return err
	}
	return work(s)
}

func (s *stores) connectRedis(ctx context.Context) (err error) {
	if s.redis, err = process.OpenRedis(s.cfg); err != nil {
		return err
	}
	return reach(ctx, s.cfg, redisServer(s.cfg), func(ctx context.Context) error { return s.redis.Ping(ctx).Err() })
}

func (s *stores) connectPostgres(ctx context.Context) (err error) {
	if s.postgres, err = db.Open(ctx, s.cfg.DatabaseURL, db.Options{
		ApplicationName: "sluice-cli",
		MaxConns:        poolSize,
	}); err != nil {
		return err
	}
	if err := reach(ctx, s.cfg, postgresServer(s.cfg), s.postgres.Ping); err != nil {
		return err
	}
	return s.postgres.CheckSchema(ctx)
}

// findPartitions takes the number of the installation, which was fixed when it was first used. A command that only
// reads must not fix it: the first sale does.
func (s *stores) findPartitions(ctx context.Context, given bool) error {
	pg, err := dialPostgres(ctx, s.cfg.DatabaseURL)
	if err != nil {
		return err
	}
	defer pg.close()
	installed, err := pg.partitions(ctx)
	switch {
	case err != nil:
		return err
	case installed == 0:
		return nil
	case given && installed != s.cfg.Partitions:
		return usagef("PARTITIONS is %d, but this installation was made with %d; leave it out, or set PARTITIONS=%d",
			s.cfg.Partitions, installed, installed)
	}
	s.cfg.Partitions = installed
	return nil
}

func (s *stores) close() {
	if s.postgres != nil {
		s.postgres.Close()
	}
	if s.redis != nil {
		_ = s.redis.Close() // nothing is lost
	}
}

// partitions lists all of them.
func (s *stores) partitions() []pipeline.Partition {
	all := make([]pipeline.Partition, s.cfg.Partitions)
	for i := range all {
		all[i] = pipeline.Partition(i)
	}
	return all
}

// now is the time by Redis' clock, the one that decides about sale windows.
func (s *stores) now(ctx context.Context) (time.Time, error) {
	now, err := s.redis.Time(ctx).Result()
	if err != nil {
		return now, unavailable(err, "Redis did not return the time")
	}
	return now, nil
}

func unavailable(err error, message string) error {
	return pipeline.Wrap(pipeline.KindUnavailable, err, message)
}
