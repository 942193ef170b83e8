package process

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/httpapi/entry"
	"sluice/internal/config"
	"sluice/pipeline/sales"
)

// newEntry returns what gives and checks entry tickets: with keys from the settings, and turns that are drawn from the
// installation's secret, so that a buyer has the same one under every key and at every api. Turns begin by the clock of
// Redis, which decides when a sale opens.
func newEntry(
	cfg config.Config, secret []byte, clock *storeClock, reg prometheus.Registerer, log *slog.Logger,
) (*entry.Service, error) {
	ring, err := entry.NewRing(cfg.Entry.Keys...)
	if err != nil {
		return nil, err
	}
	return entry.NewService(entry.Options{
		Ring: ring, Lead: cfg.Entry.Lead, Hook: cfg.Entry.Hook, Secret: secret, Now: clock.now, Metrics: reg, Log: log,
	})
}

// warnOfEntry names the sales that can't be ordered at an api without keys.
func warnOfEntry(catalogue *sales.Catalogue, tickets *entry.Service, log *slog.Logger) {
	if tickets.HasKeys() {
		return
	}
	for _, sale := range catalogue.List(time.Now(), sales.CatalogueLimit) {
		if sale.EntryTicket && sale.Phase(time.Now()) != "closed" {
			log.Warn("this sale needs entry tickets, and ENTRY_TICKET_KEYS is not set: its orders are refused with a 503",
				"sale", sale.ID)
		}
	}
}
