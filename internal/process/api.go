package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"sluice/httpapi"
	"sluice/internal/config"
	"sluice/pipeline"
)

// defaultAdminAddr is where an api serves its operations side.
const defaultAdminAddr = "127.0.0.1:8081"

// RunAPI runs the HTTP side until the context ends, and returns when every request under way is answered.
func RunAPI(ctx context.Context, cfg config.Config, version string, log *slog.Logger) error {
	stores, err := Connect(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer stores.Close()
	sales := pipeline.NewCatalogue(stores.Postgres, log)
	if err := sales.Load(ctx); err != nil {
		return err
	}
	if cfg.AuthMode == "dev" {
		log.Warn("AUTH_MODE=dev: anybody can be any buyer by sending X-User-Id; never use this in production")
	}
	reg := newRegistry(version)
	admission := pipeline.NewAdmission(stores.Redis, pipeline.DefaultKeys,
		pipeline.AdmissionOptions{Durability: stores.Features.Durability()}, pipeline.NewMetrics(reg), log)

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var parts sync.WaitGroup
	parts.Go(func() { sales.Run(ctx) })
	err = serveBoth(ctx, cfg, log, apiServers(cfg, stores, sales, admission, reg, version, log))
	stop()
	parts.Wait()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.ShutdownTimeout)
	defer cancel()
	return errors.Join(err, admission.Close(closing))
}

// servers are the two sides of the api, each on its own address so that operations are never open to buyers.
type servers struct{ public, ops *http.Server }

func apiServers(cfg config.Config, stores *Stores, sales *pipeline.Catalogue, admission *pipeline.Admission,
	reg *prometheus.Registry, version string, log *slog.Logger,
) servers {
	// Postgres is not a condition of readiness: without it orders are still accepted, and wait in the stream.
	redisCheck := func(ctx context.Context) error { return stores.Redis.Ping(ctx).Err() }
	public := httpapi.New(httpapi.Deps{
		Admission: admission,
		Sales:     sales,
		Stock:     pipeline.NewStockReader(stores.Redis, pipeline.DefaultKeys),
		Orders:    pipeline.NewLookup(stores.Redis, pipeline.DefaultKeys, stores.Postgres),
		Auth:      httpapi.DevAuth{},
		Log:       log,
		Ready:     []httpapi.Check{{Name: "redis", Run: redisCheck}},
		Version:   httpapi.Version{Version: version, Go: runtime.Version()},
		Metrics:   reg,
	})
	admin := cfg.AdminAddr
	if admin == "" {
		admin = defaultAdminAddr
	}
	return servers{
		public: httpapi.Server(cfg.HTTPAddr, public),
		ops:    opsServer(admin, opsHandler(reg, []check{{"redis", redisCheck}})),
	}
}

// serveBoth serves until the context ends or one of the two fails, which ends the other.
func serveBoth(ctx context.Context, cfg config.Config, log *slog.Logger, s servers) error {
	public, err := listen(ctx, s.public)
	if err != nil {
		return fmt.Errorf("HTTP_ADDR %s: %w", s.public.Addr, err)
	}
	ops, err := listen(ctx, s.ops)
	if err != nil {
		return errors.Join(fmt.Errorf("ADMIN_ADDR %s: %w", s.ops.Addr, err), public.Close())
	}
	log.Info("api operations", "url", "http://"+ops.Addr().String())
	log.Info("api listening", "url", "http://"+public.Addr().String())

	both, ctx := errgroup.WithContext(ctx)
	// The api's own listener answers what net/http would refuse in plain text.
	both.Go(func() error { return serve(ctx, s.public, httpapi.Listener(public), cfg.ShutdownTimeout, log) })
	both.Go(func() error { return serve(ctx, s.ops, ops, cfg.ShutdownTimeout, log) })
	return both.Wait()
}
