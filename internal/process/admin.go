package process

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/httpapi"
	"sluice/internal/config"
	"sluice/webhook"
)

// adminHandler is what operators do over HTTP.
func adminHandler(cfg config.Config, parts *Parts, reg *prometheus.Registry) http.Handler {
	return httpapi.NewAdmin(httpapi.AdminDeps{
		Store:     parts.Postgres,
		Replayer:  parts.Replayer(),
		Payments:  parts.Payments(),
		Returner:  parts.Returner(),
		Extender:  parts.Extender(),
		Publisher: parts.Publisher(),
		Stock:     parts.Stock(),
		Auditor:   parts.Auditor(),
		Repairer:  parts.Repairer(),
		Endpoints: webhook.NewEndpointService(parts.Postgres, WebhookPolicy(cfg)),
		Requests:  parts.Requests(),
		Log:       parts.Log,
		Token:     cfg.AdminToken,
		Metrics:   reg,
	})
}

// withAdmin puts the admin side beside health and metrics, which stay open to everybody who reaches the address.
func withAdmin(ops *http.ServeMux, admin http.Handler) http.Handler {
	ops.Handle("/admin/v1/", admin)
	ops.Handle("/problems", admin)
	ops.Handle("/problems/", admin)
	ops.Handle("/{$}", admin)
	return ops
}
