package process

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"sluice/internal/config"
	"sluice/pipeline"
)

// RunWorker runs a worker until the context ends, and returns when everything under way is finished or handed over.
func RunWorker(ctx context.Context, cfg config.Config, version string, log *slog.Logger) error {
	stores, err := Connect(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer stores.Close()
	reader, err := stores.openRedis(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = reader.Close() }()

	reg := newRegistry(version)
	metrics := pipeline.NewMetrics(reg)
	sales := pipeline.NewCatalogue(stores.Postgres, log)
	publisher := pipeline.NewPublisher(stores.Redis, pipeline.DefaultKeys, stores.Postgres, cfg.Partitions, log).Count(metrics)
	releaser := pipeline.NewReleaser(stores.Redis, pipeline.DefaultKeys, stores.Postgres, metrics, log)
	news := pipeline.NewNews(stores.Redis, pipeline.DefaultKeys, log)
	expirer := pipeline.NewExpirer(stores.Postgres, news, metrics, log)
	cashier := pipeline.NewCashier(stores.Redis, pipeline.DefaultKeys, stores.Postgres, stores.Postgres, news, metrics, log)
	verifier := pipeline.NewVerifier(stores.Redis, pipeline.DefaultKeys, stores.Postgres, cfg.Partitions, metrics, log)
	verifier.TellForeign(stores.Guard.Found)
	steward := pipeline.NewSteward(stores.Redis, pipeline.DefaultKeys, stores.Postgres, sales,
		pipeline.NewVerifier(stores.Redis, pipeline.DefaultKeys, stores.Postgres, cfg.Partitions, metrics, log), metrics, log)
	deliverer, pruner := deliveries(stores, cfg, reg, log)
	worker, err := pipeline.NewWorker(stores.Redis, reader, pipeline.DefaultKeys, stores.Postgres, cfg.Worker, metrics, log,
		publisher.Job(sales), releaser.Job(), releaser.WaitlistJob(sales), expirer.Job(), cashier.Job(), verifier.Job(), pruner.Job())
	if err != nil {
		return err
	}
	addr := cfg.AdminAddr
	if addr == "" {
		addr = "127.0.0.1:0" // any free port, so that any number of workers run on one machine
	}
	ops := opsServer(addr, opsHandler(reg, storeChecks(stores)))

	listener, err := listen(ctx, ops)
	if err != nil {
		return fmt.Errorf("ADMIN_ADDR %s: %w", addr, err)
	}
	log.Info("worker operations", "url", "http://"+listener.Addr().String())

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var parts sync.WaitGroup
	parts.Go(func() { sales.Run(ctx) })
	parts.Go(func() { verifier.Run(ctx) })
	parts.Go(func() { steward.Run(ctx) })
	parts.Go(func() { deliverer.Run(ctx) })
	parts.Go(func() {
		if err = serve(ctx, ops, listener, cfg.ShutdownTimeout, log); err != nil {
			stop() // without its health and metrics nobody could tell how it is
		}
	})
	worker.Run(ctx)
	stop()
	parts.Wait()
	return err
}

func storeChecks(s *Stores) []check {
	return []check{
		{"redis", func(ctx context.Context) error { return s.Redis.Ping(ctx).Err() }},
		{"postgres", s.Postgres.Ping},
	}
}
