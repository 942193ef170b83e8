package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"sluice/httpapi"
	"sluice/httpapi/auth"
	"sluice/httpapi/entry"
	"sluice/httpapi/limits"
	"sluice/internal/config"
	"sluice/pipeline/admission"
	"sluice/pipeline/journal"
	"sluice/pipeline/notification"
	"sluice/pipeline/operator"
	"sluice/pipeline/overview"
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
	webhookSecrets, err := paymentSecrets(cfg, log)
	if err != nil {
		return err
	}
	reg := newRegistry(config.API, version)
	buyers, jwks, err := newBuyers(cfg, reg, log)
	if err != nil {
		return err
	}
	parts := stores.parts(cfg, reg, log)
	if _, err := parts.Fence.Refresh(ctx); err != nil {
		return err
	}
	streamSecret, err := parts.Postgres.StreamSecret(ctx)
	if err != nil {
		return err
	}
	redisClock := &storeClock{}
	tickets, err := newEntry(cfg, streamSecret, redisClock, reg, log)
	if err != nil {
		return err
	}
	warnOfEntry(sales, tickets, log)
	public, ops, err := openCertificates(cfg, reg, log)
	if err != nil {
		return err
	}
	accepts, err := openJournal(ctx, cfg, parts, reg)
	if err != nil {
		return err
	}
	a := &api{
		publicTLS: public, opsTLS: ops, certificates: present(public, ops),
		cfg: cfg, parts: parts, registry: reg, version: version, sales: sales, waitlist: parts.Waitlist(),
		streamSecret: streamSecret, buyers: buyers, jwks: jwks, webhookSecrets: webhookSecrets, entry: tickets,
		operators: operator.NewKeyring(parts.Postgres.OperatorTokens(), cfg.AdminToken),
		admission: admission.New(stores.Redis, parts.Keys,
			admission.Options{
				Durability: cfg.Durability, DurabilityStrict: cfg.Strict, StreamMaxLag: int64(cfg.StreamMaxLag),
				Journal: accepts, Fence: parts.Fence, Elsewhere: parts.Mover(),
			}, parts.Metrics.Admission, log),
		hub: notification.NewHub(notification.HubConfig{
			Redis: stores.Redis, Keys: parts.Keys, Partitions: cfg.Partitions, Orders: stores.Postgres,
			Registerer: reg, Log: log,
		}),
	}
	a.overview = a.newOverview()
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
	running.Go(func() { watchClocks(ctx, parts, reg, redisClock) })
	running.Go(func() { a.watchBacklog(ctx, overview.NewMetrics(reg)) })
	running.Go(func() { accepts.Run(ctx, stores.Postgres, verifier.SeesRedis) })
	running.Go(func() { a.waitlist.Run(ctx, sales) })
	if jwks != nil {
		running.Go(func() { jwks.Run(ctx) })
	}
	running.Go(func() { a.secretFiles().run(ctx) })
	err = a.serveBoth(ctx, a.servers())
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
	overview  *overview.Reader
	streams   httpapi.Streams
	buyers    buyers
	jwks      *auth.JWKS // nil where no keys are fetched
	entry     *entry.Service

	streamSecret   []byte
	webhookSecrets *httpapi.WebhookSecrets // nil: webhooks of payments are refused
	operators      *operator.Keyring

	publicTLS, opsTLS *shownCertificate // nil: without TLS
	certificates      []*shownCertificate
}

// servers are the two sides of the api, each on its own address so that operations are never open to buyers.
type servers struct {
	public, ops *http.Server
	connections limits.Connections // of the public side
}

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
		Auth:      a.buyers,
		Entry:     a.entry,
		Log:       a.parts.Log,
		Ready:     ready,
		Version:   httpapi.Version{Version: a.version, Go: runtime.Version()},
		Metrics:   a.registry,

		WebhookSecrets: a.webhookSecrets,
		StreamSecret:   a.streamSecret,
		CORSOrigins:    a.cfg.CORSOrigins,
		Limits: httpapi.Limits{
			Client: a.cfg.HTTP.Client, Buyer: a.cfg.HTTP.Buyer, Sale: a.cfg.HTTP.Sale,
			Addresses: limits.NewAddresses(a.cfg.HTTP.TrustedProxies),
		},
	})
	if a.cfg.LocalBuyersOnly() {
		public = httpapi.LocalOnly(public, a.cfg.HTTP.AllowedHosts)
	}
	admin := a.cfg.AdminAddr
	if admin == "" {
		admin = defaultAdminAddr
	}
	operators := auth.NewOperators(a.operators, limits.NewAddresses(a.cfg.HTTP.TrustedProxies).Client, a.registry)
	pages := a.newConsole(operators)
	ops := withAdmin(opsHandler(a.registry, ready), adminHandler(a.cfg, a.parts, operators, a.registry, a.entry), pages)
	if a.cfg.LocalOperatorsOnly() {
		ops = httpapi.LocalOnly(ops, a.cfg.HTTP.AllowedHosts)
	}
	opsSide := opsServer(admin, ops)
	opsSide.RegisterOnShutdown(pages.Close)
	return servers{
		public: httpapi.Server(a.cfg.HTTPAddr, public), ops: opsSide,
		connections: publicConnections(a.cfg, a.registry),
	}
}

// urlOf says where a listener is reached.
func urlOf(l net.Listener, c *shownCertificate) string {
	if l.Addr().Network() == "unix" {
		return "unix:" + l.Addr().String()
	}
	return c.scheme() + "://" + l.Addr().String()
}

// serveBoth serves until the context ends or one of the two fails, which ends the other.
func (a *api) serveBoth(ctx context.Context, s servers) error {
	log, shutdown := a.parts.Log, a.cfg.ShutdownTimeout
	public, err := listen(ctx, s.public)
	if err != nil {
		return fmt.Errorf("HTTP_ADDR %s: %w", s.public.Addr, err)
	}
	ops, err := listen(ctx, s.ops)
	if err != nil {
		return errors.Join(fmt.Errorf("ADMIN_ADDR %s: %w", s.ops.Addr, err), public.Close())
	}
	log.Info("api operations", "url", urlOf(ops, a.opsTLS))
	log.Info("api listening", "url", urlOf(public, a.publicTLS))

	both, ctx := errgroup.WithContext(ctx)
	handshakes := httpapi.CountHandshakes(a.registry)
	buyers, operators := a.publicTLS.over(s.connections.Listener(public), handshakes), a.opsTLS.over(ops, handshakes)
	both.Go(func() error { return serve(ctx, s.public, buyers, shutdown, log) })
	both.Go(func() error { return serve(ctx, s.ops, operators, shutdown, log) })
	return both.Wait()
}
