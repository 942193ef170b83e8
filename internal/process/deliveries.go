package process

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/internal/config"
	"sluice/pipeline"
	"sluice/webhook"
)

// deliveries are the parts of a worker that tell others what became of orders, and the jobs that belong to it.
func deliveries(
	stores *Stores, cfg config.Config, reg prometheus.Registerer, log *slog.Logger,
) (*webhook.Deliverer, []pipeline.Job) {
	metrics := webhook.NewMetrics(reg)
	deliverer := webhook.NewDeliverer(stores.Postgres, WebhookPolicy(cfg), cfg.Encryption, metrics, log)
	return deliverer, []pipeline.Job{
		webhook.NewAnnouncer(stores.Postgres).Job(),
		webhook.NewPruner(stores.Postgres, cfg.Retention.Events, metrics, log).Job(),
	}
}

// WebhookPolicy is where the settings let events be sent.
func WebhookPolicy(cfg config.Config) webhook.Policy {
	return webhook.Policy{AllowPrivate: cfg.WebhookPrivate}
}
