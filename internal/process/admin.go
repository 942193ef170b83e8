package process

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/httpapi"
	"sluice/internal/config"
	"sluice/pipeline"
	"sluice/webhook"
)

// adminHandler is what operators do over HTTP.
func adminHandler(cfg config.Config, stores *Stores, metrics *pipeline.Metrics, reg *prometheus.Registry, log *slog.Logger) http.Handler {
	keys := pipeline.DefaultKeys
	auditor := pipeline.NewAuditor(stores.Redis, keys, stores.Postgres)
	verifier := pipeline.NewVerifier(stores.Redis, keys, stores.Postgres, cfg.Partitions, metrics, log)
	releaser := pipeline.NewReleaser(stores.Redis, keys, stores.Postgres, metrics, log)
	return httpapi.NewAdmin(httpapi.AdminDeps{
		Store:     stores.Postgres,
		Replayer:  pipeline.NewReplayer(stores.Redis, keys, stores.Postgres, releaser, log),
		Publisher: pipeline.NewPublisher(stores.Redis, keys, stores.Postgres, cfg.Partitions, log).Count(metrics),
		Stock:     pipeline.NewStockReader(stores.Redis, keys),
		Auditor:   auditor,
		Repairer:  pipeline.NewRepairer(stores.Postgres, auditor, verifier, metrics, log),
		Endpoints: webhook.NewEndpointService(stores.Postgres, WebhookPolicy(cfg)),
		Log:       log,
		Token:     cfg.AdminToken,
		Metrics:   reg,
	})
}

// withAdmin puts the admin side beside health and metrics, which stay open to whoever reaches the address.
func withAdmin(ops *http.ServeMux, admin http.Handler) http.Handler {
	ops.Handle("/admin/v1/", admin)
	ops.Handle("/problems/", admin)
	return ops
}
