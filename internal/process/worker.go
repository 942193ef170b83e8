package process

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"sluice/httpapi"
	"sluice/internal/archive"
	"sluice/internal/config"
	"sluice/pipeline"
	"sluice/pipeline/recovery"
	"sluice/pipeline/retention"
	"sluice/pipeline/sales"
	"sluice/pipeline/worker"
)

// RunWorker runs a worker until the context ends, and returns when everything under way is finished or handed over.
func RunWorker(ctx context.Context, cfg config.Config, version string, log *slog.Logger) error {
	SpareCollections()
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

	reg := newRegistry(config.Worker, version)
	parts := stores.parts(cfg, reg, log)
	sales := sales.NewCatalogue(stores.Postgres, log)
	verifying := parts.VerifierConfig()
	verifying.Found = stores.Guard.Found
	verifier := recovery.NewVerifier(verifying)
	reconciler := parts.Reconciler(sales)
	export, err := exporter(cfg)
	if err != nil {
		return err
	}
	deliverer, events := deliveries(stores, cfg, reg, log)
	worker, err := worker.New(worker.Config{
		Redis: stores.Redis, Reader: reader, Keys: parts.Keys, Store: stores.Postgres, Options: cfg.Worker, Log: log,
		Metrics: parts.Metrics.Worker, DeadLetters: parts.Metrics.DeadLetter, Resubmits: parts.Metrics.Resubmit,
		Fence: parts.Fence,
		Jobs: append([]pipeline.Job{
			parts.Publisher().Job(sales), parts.Releaser().Job(), parts.HandOver().Job(sales), parts.Expirer().Job(),
			parts.Payments().Job(), verifier.Job(), parts.Requests().Job(),
			parts.Retirer(cfg.Retention.Sales).Job(), parts.Dropper(cfg.Retention, export).Job(),
			parts.Eraser().Job(),
		}, append(parts.Mover().Jobs(), events...)...),
	})
	if err != nil {
		return err
	}
	addr := cfg.AdminAddr
	if addr == "" {
		addr = "127.0.0.1:0" // any free port, so that any number of workers run on one machine
	}
	ops := opsServer(addr, opsHandler(reg, workerReadiness(worker, stores, log)))
	shown, err := openCertificate(config.AdminCertificate, cfg.AdminTLS, reg, log)
	if err != nil {
		return err
	}

	listener, err := listen(ctx, ops)
	if err != nil {
		return fmt.Errorf("ADMIN_ADDR %s: %w", addr, err)
	}
	log.Info("worker operations", "url", urlOf(listener, shown))
	files := newSecretFiles(reg, log)
	files.addCertificates(present(shown))
	listener = shown.over(listener, httpapi.CountHandshakes(reg))

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { sales.Run(ctx) })
	running.Go(func() { parts.Fence.Run(ctx) })
	running.Go(func() { verifier.Run(ctx) })
	running.Go(func() { reconciler.Run(ctx) })
	running.Go(func() { deliverer.Run(ctx) })
	running.Go(func() { files.run(ctx) })
	running.Go(func() { watchClocks(ctx, parts, reg, &storeClock{}) })
	running.Go(func() {
		if err = serve(ctx, ops, listener, cfg.ShutdownTimeout, log); err != nil {
			stop() // without its health and metrics nobody could tell how it is
		}
	})
	worker.Run(ctx)
	stop()
	running.Wait()
	return err
}

// exporter writes what is dropped into files, where that is asked for.
func exporter(cfg config.Config) (retention.Export, error) {
	if cfg.RetentionExport == "" {
		return nil, nil
	}
	directory, err := archive.Open(cfg.RetentionExport)
	if err != nil {
		return nil, fmt.Errorf("RETENTION_EXPORT_DIR: %w", err)
	}
	return directory.Write, nil
}
