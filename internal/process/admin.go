package process

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/httpapi"
	"sluice/httpapi/auth"
	"sluice/httpapi/entry"
	"sluice/httpapi/limits"
	"sluice/internal/config"
	"sluice/pipeline/operator"
	"sluice/webhook"
)

// adminHandler is what operators do over HTTP.
func adminHandler(
	cfg config.Config, parts *Parts, keyring *operator.Keyring, reg *prometheus.Registry, tickets *entry.Service,
) http.Handler {
	addresses := limits.NewAddresses(cfg.HTTP.TrustedProxies)
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
		Operators: auth.NewOperators(keyring, addresses.Client, reg),
		Addresses: addresses,
		Metrics:   reg,
		Entry:     tickets,
	})
}

// withAdmin puts the admin side beside health and metrics, which stay open to everybody who reaches the address.
func withAdmin(ops *http.ServeMux, admin http.Handler) http.Handler {
	ops.Handle("/admin/v1/", admin)
	ops.Handle("/problems", admin)
	ops.Handle("/problems/", admin)
	ops.Handle("/debug/pprof/", admin)
	ops.Handle("/{$}", admin)
	return ops
}
