package process

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"sluice/db"
	"sluice/internal/config"
	"sluice/lua/functions"
	"sluice/pipeline"
	"sluice/pipeline/installation"
	"sluice/pipeline/metrics"
	"sluice/pipeline/redisstore"
)

// Stores are the open connections of a process.
type Stores struct {
	Redis    redis.UniversalClient
	Postgres *db.Store
	Features redisstore.Features // of Redis
	Guard    *installation.Guard // keeps every connection of openRedis from another installation's Redis
}

// parts are those of a server program, with its metrics.
func (s *Stores) parts(cfg config.Config, reg prometheus.Registerer, log *slog.Logger) *Parts {
	p := NewParts(s.Redis, s.Postgres, cfg.Partitions, log)
	p.Metrics, p.Fence = metrics.New(reg), installation.NewFence(s.Postgres, cfg.FenceMaxAge)
	return p
}

// Connect opens both stores, waiting for each at most cfg.StartTimeout, and checks that Redis can be trusted with
// orders, that the schema is migrated, that PARTITIONS is what it was at install and that Redis belongs to no other
// database.
func Connect(ctx context.Context, cfg config.Config, log *slog.Logger) (*Stores, error) {
	s := &Stores{}
	if err := s.connect(ctx, cfg, log); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Stores) connect(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	s.Guard = installation.NewGuard(pipeline.DefaultKeys)
	rdb, err := s.openRedis(cfg)
	if err != nil {
		return err
	}
	s.Redis = rdb
	if err := waitFor(ctx, "Redis", cfg.StartTimeout, log, func(ctx context.Context) error {
		features, err := redisstore.Probe(ctx, rdb)
		s.Features = features
		return err
	}); err != nil {
		return err
	}
	if err := s.Features.Require(cfg.Durability); err != nil {
		return err
	}
	if cfg.Durability == pipeline.DurabilityReplica && s.Features.Replicas == 0 {
		log.Warn(withoutReplica(cfg.Strict))
	}
	if err := waitFor(ctx, "Postgres", cfg.StartTimeout, log, func(ctx context.Context) error {
		return s.openPostgres(ctx, cfg)
	}); err != nil {
		return err
	}
	if err := s.Postgres.CheckSchema(ctx); err != nil {
		return err
	}
	if err := s.checkPartitions(ctx, cfg.Partitions); err != nil {
		return err
	}
	return s.checkInstallation(ctx, cfg.Partitions)
}

// withoutReplica says what the lack of a replica means. It is no reason not to start: one may come, as it may go.
func withoutReplica(strict bool) string {
	if strict {
		return "DURABILITY=replica and DURABILITY_STRICT, but no replica is connected to Redis: orders are refused until one is"
	}
	return "DURABILITY=replica, but no replica is connected to Redis: receipts say fsync until one is"
}

// checkInstallation refuses a Redis that belongs to another database: a worker would take its orders for orders of
// unknown sales.
func (s *Stores) checkInstallation(ctx context.Context, partitions int) error {
	id, err := s.Postgres.Installation(ctx)
	if err != nil {
		return err
	}
	s.Guard.Set(id, partitions)
	return installation.Check(ctx, s.Redis, pipeline.DefaultKeys, partitions, id)
}

// openRedis makes a client that never uses another installation's Redis, once the guard knows ours.
func (s *Stores) openRedis(cfg config.Config) (redis.UniversalClient, error) {
	opts, err := redisOptions(cfg)
	if err != nil {
		return nil, err
	}
	opts.OnConnect = s.Guard.OnConnect
	rdb := newClient(cfg, opts)
	rdb.AddHook(s.Guard)
	return rdb, nil
}

// openPostgres makes the pool once and asks the server each time.
func (s *Stores) openPostgres(ctx context.Context, cfg config.Config) error {
	if s.Postgres == nil {
		store, err := db.Open(ctx, cfg.DatabaseURL, db.Options{})
		if err != nil {
			return err
		}
		s.Postgres = store
	}
	return s.Postgres.Ping(ctx)
}

func (s *Stores) checkPartitions(ctx context.Context, want int) error {
	installed, err := s.Postgres.EnsurePartitions(ctx, want)
	if err != nil {
		return err
	}
	if installed != want {
		return pipeline.Errorf(pipeline.KindInvalid,
			"PARTITIONS is %d, but this installation was made with %d: keys would not be found; set PARTITIONS=%d", want, installed, installed)
	}
	return nil
}

// Close closes what is open.
func (s *Stores) Close() {
	if s.Postgres != nil {
		s.Postgres.Close()
	}
	if s.Redis != nil {
		_ = s.Redis.Close() // nothing can be done about it, and nothing is lost
	}
}

func init() { redis.SetLogger(quiet{}) }

// quiet silences the client's own log: every one of its errors reaches a caller of ours, who logs it with its meaning.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// OpenRedis makes a client; it does not connect yet.
func OpenRedis(cfg config.Config) (redis.UniversalClient, error) {
	opts, err := redisOptions(cfg)
	if err != nil {
		return nil, err
	}
	return newClient(cfg, opts), nil
}

func newClient(cfg config.Config, opts *redis.UniversalOptions) redis.UniversalClient {
	rdb := config.NewRedisClient(opts)
	if cfg.RedisFunctions {
		functions.Use(rdb)
	}
	return rdb
}

func redisOptions(cfg config.Config) (*redis.UniversalOptions, error) {
	opts, err := cfg.RedisOptions()
	if err != nil {
		return nil, fmt.Errorf("REDIS_URL: %w", err)
	}
	return opts, nil
}

// waitFor tries until a server answers: at start, servers often come up together with us.
func waitFor(
	ctx context.Context, server string, limit time.Duration, log *slog.Logger, try func(context.Context) error,
) error {
	const attempt = 5 * time.Second
	said := false
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, attempt)
		defer cancel()
		err := try(ctx)
		if config.Distrust(err, "", "") != "" {
			return struct{}{}, backoff.Permanent(err) // waiting helps no certificate
		}
		if err != nil && pipeline.KindOf(err) == pipeline.KindInvalid {
			return struct{}{}, backoff.Permanent(err)
		}
		if err != nil && !said {
			said = true
			log.Warn("waiting for "+server, "at_most", limit, "error", err)
		}
		return struct{}{}, err
	}, backoff.WithMaxElapsedTime(limit))
	if why := config.Distrust(err, server, map[string]string{
		"Redis": config.RedisAuthority, "Postgres": config.PostgresAuthority,
	}[server]); why != "" {
		return pipeline.Wrap(pipeline.KindInvalid, err, why)
	}
	if err != nil {
		return fmt.Errorf("%s did not answer within %s: %w", server, limit, err)
	}
	return nil
}
