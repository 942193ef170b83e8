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
	"sluice/pipeline/admission"
	"sluice/pipeline/journal"
	"sluice/pipeline/notification"
	"sluice/pipeline/recovery"
	"sluice/pipeline/sales"
	"sluice/pipeline/waitlist"
)

// defaultAdminAddr is where an api serves its operations side.
const defaultAdminAddr = "127.0.0.1:8081"

// RunAPI runs the HTTP side until the context ends, and returns when every request under way is answered.
func RunAPI(ctx context.Context, cfg config.Config, version string, log *slog.Logger) error {
	SpareCollections()
	stores, err := Connect(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer stores.Close()
	sales := sales.NewCatalogue(stores.Postgres, log)
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
	parts := stores.parts(cfg, reg, log)
	if _, err := parts.Fence.Refresh(ctx); err != nil {
		return err
	}
	streamSecret, err := parts.Postgres.StreamSecret(ctx)
	if err != nil {
		return err
	}
	accepts, err := openJournal(ctx, cfg, parts, reg)
	if err != nil {
		return err
	}
	a := &api{
		cfg: cfg, parts: parts, registry: reg, version: version, sales: sales, waitlist: parts.Waitlist(),
		streamSecret: streamSecret,
		admission: admission.New(stores.Redis, parts.Keys,
			admission.Options{
				Durability: cfg.Durability, DurabilityStrict: cfg.Strict, StreamMaxLag: int64(cfg.StreamMaxLag),
				Journal: accepts, Fence: parts.Fence,
			}, parts.Metrics.Admission, log),
		hub: notification.NewHub(notification.HubConfig{
			Redis: stores.Redis, Keys: parts.Keys, Partitions: cfg.Partitions, Orders: stores.Postgres,
			Registerer: reg, Log: log,
		}),
	}
	verifying := parts.VerifierConfig()
	verifying.Accepts, verifying.Found = parts.Journaled(a.admission), stores.Guard.Found
	verifier := recovery.NewVerifier(verifying)

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { sales.Run(ctx) })
	running.Go(func() { parts.Fence.Run(ctx) })
	running.Go(func() { verifier.Run(ctx) })
	running.Go(func() { a.hub.Run(ctx) })
	running.Go(func() { watchClocks(ctx, parts, reg) })
	running.Go(func() { accepts.Run(ctx, stores.Postgres, verifier.SeesRedis) })
	running.Go(func() { a.waitlist.Run(ctx, sales) })
	err = serveBoth(ctx, cfg, log, a.servers())
	stop()
	running.Wait()
	a.streams.Wait() // they end with the hub
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.ShutdownTimeout)
	defer cancel()
	return errors.Join(err, a.admission.Close(closing), accepts.Leave(closing, stores.Postgres))
}

// openJournal opens the accept journal, and announces it before the first accept.
func openJournal(
	ctx context.Context, cfg config.Config, parts *Parts, reg prometheus.Registerer,
) (*journal.Journal, error) {
	id, err := parts.Postgres.Installation(ctx)
	if err != nil {
		return nil, err
	}
	j := journal.Open(journal.Options{
		Dir: cfg.AcceptJournal, Installation: id, Fsync: cfg.JournalFsync, Metrics: journal.NewMetrics(reg), Log: parts.Log,
	})
	return j, j.Announce(ctx, parts.Postgres)
}

// api is what the handlers of both sides are made of.
type api struct {
	cfg       config.Config
	parts     *Parts
	registry  *prometheus.Registry
	version   string
	sales     *sales.Catalogue
	waitlist  *waitlist.Service
	admission *admission.Controller
	hub       *notification.Hub
	streams   httpapi.Streams

	streamSecret []byte
}

// servers are the two sides of the api, each on its own address so that operations are never open to buyers.
type servers struct{ public, ops *http.Server }

func (a *api) servers() servers {
	ready := a.readiness()
	public := httpapi.New(httpapi.Deps{
		Admission: a.admission,
		Sales:     a.sales,
		Stock:     a.parts.Stock(),
		Orders:    a.parts.Lookup(),
		Cancel:    a.parts.Canceller(),
		Push:      a.hub,
		Streams:   &a.streams,
		Payments:  a.parts.Payments(),
		Waitlist:  a.waitlist,
		Auth:      httpapi.DevAuth{},
		Log:       a.parts.Log,
		Ready:     ready,
		Version:   httpapi.Version{Version: a.version, Go: runtime.Version()},
		Metrics:   a.registry,

		WebhookSecrets: a.cfg.WebhookSecrets,
		StreamSecret:   a.streamSecret,
		CORSOrigins:    a.cfg.CORSOrigins,
	})
	admin := a.cfg.AdminAddr
	if admin == "" {
		admin = defaultAdminAddr
	}
	operators := adminHandler(a.cfg, a.parts, a.registry)
	return servers{
		public: httpapi.Server(a.cfg.HTTPAddr, public),
		ops:    opsServer(admin, withAdmin(opsHandler(a.registry, ready), operators)),
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
