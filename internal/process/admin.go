package process

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/httpapi"
	"sluice/httpapi/auth"
	"sluice/httpapi/entry"
	"sluice/httpapi/limits"
	"sluice/internal/config"
	"sluice/webhook"
)

// adminHandler is what operators do over HTTP.
func adminHandler(
	cfg config.Config, parts *Parts, operators *auth.Operators, reg *prometheus.Registry, tickets *entry.Service,
) http.Handler {
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
		Endpoints: webhook.NewEndpointService(parts.Postgres.EndpointRegistry(), WebhookPolicy(cfg), cfg.Encryption),
		Requests:  parts.Requests(),
		Log:       parts.Log,
		Operators: operators,
		Addresses: limits.NewAddresses(cfg.HTTP.TrustedProxies),
		Metrics:   reg,
		Entry:     tickets,
	})
}

// withAdmin puts the admin side and the console beside health and metrics, which stay open to everybody who reaches the
// address.
func withAdmin(ops *http.ServeMux, admin, console http.Handler) http.Handler {
	ops.Handle("/console/", console)
	ops.Handle("/admin/v1/", admin)
	ops.Handle("/problems", admin)
	ops.Handle("/problems/", admin)
	ops.Handle("/debug/pprof/", admin)
	ops.Handle("/{$}", admin)
	return ops
}
