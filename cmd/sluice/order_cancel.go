package main

import (
	"log/slog"

	"sluice/internal/config"
	"sluice/internal/process"
	"sluice/pipeline"
)

type orderCancel struct {
	keyed
	Order  string `arg:"" help:"Id of the order (a UUID)."`
	Sale   string `required:"" placeholder:"ID" help:"Id of the sale."`
	Reason string `required:"" placeholder:"TEXT" help:"Why, for the audit log; at most 1000 bytes."`
}

// Run cancels the order. One that is paid, or has ended in another way, stays as it is: exit code 1.
func (c *orderCancel) Run(a *app) error {
	id, err := parseOrderID(c.Order)
	if err != nil {
		return err
	}
	return a.withStores(func(s *stores) error {
		canceller := s.parts(process.NewLogger(a.err, quietErrors(s.cfg))).Canceller()
		order, changed, err := canceller.CancelAs(a.ctx, c.Sale, id.String(), actor(), c.Reason)
		switch {
		case pipeline.KindOf(err) == pipeline.KindConflict:
			sayf(a.err, "sluice: %s; nothing was changed", sentence(err)) // the command was right, but came too late
			return errFound
		case err != nil:
			return advise(err, pipeline.KindNotFound, "sluice order show says whether it is still queued")
		}
		cancelled := struct {
			SaleID  string   `json:"sale_id"`
			OrderID string   `json:"order_id"`
			UserID  string   `json:"user_id"`
			Changed bool     `json:"changed"` // false: it was cancelled before
			Row     *rowView `json:"row"`
		}{order.SaleID, order.ID, order.UserID, changed, viewRow(&order)}
		if !changed {
			return a.answer(cancelled, "Order %s was cancelled before, at %s; nothing was changed.", order.ID,
				shortTime(order.ClosedAt))
		}
		return a.answer(cancelled, "Order %s is cancelled; a worker gives back %s within a second.", order.ID,
			counted(int64(order.Quantity), "unit"))
	})
}

// quietErrors are the settings of a command that prints its own result: only errors are logged as well.
func quietErrors(cfg config.Config) config.Config {
	cfg.LogLevel = max(cfg.LogLevel, slog.LevelError)
	return cfg
}
