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
	if cfg.AdminToken == "" {
		log.Warn("ADMIN_TOKEN is not set: the admin API lets nobody in")
	}
	if len(cfg.WebhookSecrets) == 0 {
		log.Warn("PAYMENT_WEBHOOK_SECRET is not set: webhooks of payments are turned away")
	}
	reg := newRegistry(version)
	metrics := pipeline.NewMetrics(reg)
	admission := pipeline.NewAdmission(stores.Redis, pipeline.DefaultKeys,
		pipeline.AdmissionOptions{Durability: cfg.Durability, StreamMaxLag: int64(cfg.StreamMaxLag)}, metrics, log)
	verifier := pipeline.NewVerifier(stores.Redis, pipeline.DefaultKeys, stores.Postgres, cfg.Partitions, metrics, log,
		admission.Witness(stores.Postgres))
	verifier.TellForeign(stores.Guard.Found)

	hub := pipeline.NewHub(stores.Redis, pipeline.DefaultKeys, cfg.Partitions, stores.Postgres, pipeline.HubOptions{}, reg, log)

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var parts sync.WaitGroup
	var streams httpapi.Streams
	parts.Go(func() { sales.Run(ctx) })
	parts.Go(func() { verifier.Run(ctx) })
	parts.Go(func() { hub.Run(ctx) })
	waitlist := pipeline.NewWaitlist(stores.Redis, pipeline.DefaultKeys, stores.Postgres,
		pipeline.NewLookup(stores.Redis, pipeline.DefaultKeys, stores.Postgres), metrics, log)
	parts.Go(func() { waitlist.Run(ctx, sales) })
	operators := adminHandler(cfg, stores, metrics, reg, log)
	err = serveBoth(ctx, cfg, log, apiServers(cfg, stores, sales, admission, hub, &streams, waitlist, operators, metrics, reg, version, log))
	stop()
	parts.Wait()
	streams.Wait() // the hub's end is theirs
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.ShutdownTimeout)
	defer cancel()
	return errors.Join(err, admission.Close(closing))
}

// servers are the two sides of the api, each on its own address so that operations are never open to buyers.
type servers struct{ public, ops *http.Server }

func apiServers(cfg config.Config, stores *Stores, sales *pipeline.Catalogue, admission *pipeline.Admission,
	hub *pipeline.Hub, streams *httpapi.Streams, waitlist *pipeline.Waitlist, operators http.Handler,
	metrics *pipeline.Metrics, reg *prometheus.Registry, version string, log *slog.Logger,
) servers {
	// Postgres is not a condition of readiness: without it orders are still accepted, and wait in the stream.
	redisCheck := func(ctx context.Context) error { return stores.Redis.Ping(ctx).Err() }
	lookup := pipeline.NewLookup(stores.Redis, pipeline.DefaultKeys, stores.Postgres)
	news := pipeline.NewNews(stores.Redis, pipeline.DefaultKeys, log)
	public := httpapi.New(httpapi.Deps{
		Admission: admission,
		Sales:     sales,
		Stock:     pipeline.NewStockReader(stores.Redis, pipeline.DefaultKeys),
		Orders:    lookup,
		Cancel:    pipeline.NewCanceller(lookup, stores.Postgres, news, metrics),
		Push:      hub,
		Streams:   streams,
		Payments:  pipeline.NewCashier(stores.Redis, pipeline.DefaultKeys, stores.Postgres, stores.Postgres, news, metrics, log),
		Waitlist:  waitlist,
		Auth:      httpapi.DevAuth{},
		Log:       log,
		Ready:     []httpapi.Check{{Name: "redis", Run: redisCheck}},
		Version:   httpapi.Version{Version: version, Go: runtime.Version()},
		Metrics:   reg,

		WebhookSecrets: cfg.WebhookSecrets,
	})
	admin := cfg.AdminAddr
	if admin == "" {
		admin = defaultAdminAddr
	}
	return servers{
		public: httpapi.Server(cfg.HTTPAddr, public),
		ops:    opsServer(admin, withAdmin(opsHandler(reg, []check{{"redis", redisCheck}}), operators)),
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
	both.Go(func() error { return serve(ctx, s.ops, httpapi.Listener(ops), cfg.ShutdownTimeout, log) })
	return both.Wait()
}
