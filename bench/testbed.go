package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"sluice/db"
	"sluice/internal/config"
	"sluice/internal/localservers"
	"sluice/internal/process"
	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/sales"
)

const (
	saleID     = "bench"
	partitions = 16 // as shipped
	// controlTimeout bounds a call that is not measured: to empty a Redis with a million orders takes a second.
	controlTimeout = time.Minute
)

var keys = pipeline.DefaultKeys

// testbed is where the benchmark takes place: private servers, one open sale with a huge stock, and the buyers.
type testbed struct {
	opts     Options
	log      *slog.Logger
	servers  *localservers.Servers
	rdb      redis.UniversalClient // as the api and the worker have it
	control  redis.UniversalClient // for what is not measured
	store    *db.Store
	pool     *pgxpool.Pool // the bare table's
	sale     *pipeline.Sale
	more     []*pipeline.Sale // of the scale section
	sales    *sales.Catalogue
	buyers   *buyersProcess
	progress progress
	load     string // of the machine before we began
	next     uint64 // number of the first buyer of the next round
}

func openTestbed(ctx context.Context, opts Options) (*testbed, error) {
	s := &testbed{
		opts: opts, load: loadAverage(), progress: newProgress(os.Stderr),
		log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *testbed) open(ctx context.Context) (err error) {
	if s.buyers, err = startBuyers(); err != nil {
		return err
	}
	if s.servers, err = localservers.Start(ctx); err != nil {
		return err
	}
	if s.rdb, err = process.OpenRedis(config.Config{RedisURL: s.servers.Redis.URL()}); err != nil {
		return err
	}
	if s.control, err = controlClient(s.servers.Redis.URL()); err != nil {
		return err
	}
	// A rewrite of the append-only file in the middle of a round would be charged to one candidate by chance.
	if err = s.control.ConfigSet(ctx, "auto-aof-rewrite-percentage", "0").Err(); err != nil {
		return err
	}
	if err = s.openPostgres(ctx); err != nil {
		return err
	}
	return s.openSale(ctx)
}

func controlClient(url string) (redis.UniversalClient, error) {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	opts.ReadTimeout, opts.MaxRetries = controlTimeout, -1
	return redis.NewClient(opts), nil
}

func (s *testbed) openPostgres(ctx context.Context) (err error) {
	url := s.servers.Postgres.URL()
	if err = db.Migrate(ctx, url); err != nil {
		return err
	}
	if s.store, err = db.Open(ctx, url, db.Options{}); err != nil {
		return err
	}
	if s.pool, err = pgxpool.New(ctx, url); err != nil {
		return err
	}
	_, err = s.pool.Exec(ctx, `create table bare_orders (like orders including all)`)
	return err
}

func (s *testbed) openSale(ctx context.Context) error {
	now := time.Now()
	s.sale = &pipeline.Sale{
		ID: saleID, Title: "Benchmark", Total: pipeline.MaxStock, MaxQuantity: 1,
		OpensAt: now.Add(-time.Minute), ClosesAt: now.Add(24 * time.Hour),
		PaymentWindow: 15 * time.Minute, State: pipeline.SaleActive, Partitions: pipeline.PlaceSale(saleID, partitions),
	}
	if err := s.store.CreateSale(ctx, s.sale); err != nil {
		return err
	}
	s.sales = sales.NewCatalogue(s.store, s.log)
	return s.sales.Load(ctx)
}

// clear empties Redis and loads the sales anew, so that every round begins with the same state: no buyers, no events,
// an append-only file of a few lines. It returns when the server has nothing left to do in the background.
func (s *testbed) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	if err := s.control.Do(ctx, "FLUSHALL", "SYNC").Err(); err != nil {
		return err
	}
	id, err := s.store.Installation(ctx)
	if err != nil {
		return err
	}
	for _, sale := range append([]*pipeline.Sale{s.sale}, s.more...) {
		if err := s.loadSale(ctx, id, sale); err != nil {
			return err
		}
	}
	if err := s.rewrite(ctx); err != nil {
		return err
	}
	return s.control.ConfigResetStat(ctx).Err()
}

// loadSale puts a sale into Redis, after what a verifier does to the partition that it is on.
func (s *testbed) loadSale(ctx context.Context, installation string, sale *pipeline.Sale) error {
	p := sale.Partitions[0]
	owned := keys.ForVerify(p, "")
	owned.ID = installation
	for _, step := range []func(context.Context, redis.Scripter, lua.VerifyKeys, string) (lua.Trust,
		error){lua.BeginVerify, lua.FinishVerify} {
		if _, err := step(ctx, s.control, owned, "bench"); err != nil {
			return err
		}
	}
	_, err := lua.Load(ctx, s.control, keys.Sale(p, sale.ID), keys.Trusted(p), lua.SaleFields{
		Stock: sale.Total, Total: sale.Total, OpensMS: sale.OpensAt.UnixMilli(), ClosesMS: sale.ClosesAt.UnixMilli(),
		MaxQuantity: sale.MaxQuantity, State: string(sale.State), Version: sale.Version,
	})
	return err
}

// rewrite drops the old append-only file and waits for it.
func (s *testbed) rewrite(ctx context.Context) error {
	if err := s.control.BgRewriteAOF(ctx).Err(); err != nil {
		return err
	}
	return s.awaitRewrite(ctx)
}

// awaitRewrite returns when no append-only file is being written anew.
func (s *testbed) awaitRewrite(ctx context.Context) error {
	const look = 5 * time.Millisecond
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		info, err := s.control.Info(ctx, "persistence").Result()
		if err != nil {
			return err
		}
		if strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0") {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("append-only file: %w", ctx.Err())
		}
	}
}

// newBuyers sets a range of buyers apart that nobody else gets.
func (s *testbed) newBuyers() (first uint64) {
	const most = 1 << 32 // far more than a round can ask for
	first = s.next
	s.next += most
	return first
}

func (s *testbed) close() error {
	var errs []error
	if s.pool != nil {
		s.pool.Close()
	}
	if s.store != nil {
		s.store.Close()
	}
	for _, client := range []redis.UniversalClient{s.rdb, s.control} {
		if client != nil {
			errs = append(errs, client.Close())
		}
	}
	if s.servers != nil {
		errs = append(errs, s.servers.Close())
	}
	if s.buyers != nil {
		errs = append(errs, s.buyers.close())
	}
	return errors.Join(errs...)
}
