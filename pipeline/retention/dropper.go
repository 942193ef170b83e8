package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/retry"
)

const (
	// dropEvery is how late a batch may be dropped: rows that are kept for months can wait for minutes.
	dropEvery = 5 * time.Minute
	// dropSales bounds the sales that one run looks at: each is audited before its first batch.
	dropSales = 100
	// dropBatch is how many rows one transaction drops, with what belongs to them: some 200 ms, and some 1 MB of export.
	dropBatch = 2000
	// auditTimeout bounds the audit of a sale: some seconds for a million orders.
	auditTimeout = 10 * time.Minute
	// LookAgain is how long a sale that was held back is left alone.
	LookAgain = time.Hour
)

// Least is how long anything is kept at least: providers repeat webhooks for days, and events wait for their receivers
// for webhook.KeepWaiting. What they name must still be here.
const Least = 30 * 24 * time.Hour

// Store is where orders are dropped.
type Store interface {
	SetPolicy(ctx context.Context, policy Policy, exported bool) error
	SalesToDrop(ctx context.Context, after, lookAgain time.Duration, limit int) ([]*pipeline.Sale, error)
	DropHolds(ctx context.Context, saleID string) (Holds, error)
	HoldDrop(ctx context.Context, saleID, why string) error
	BeginDrop(ctx context.Context, saleID string, after time.Duration) (bool, error)
	DropBatch(ctx context.Context, saleID string, limit int, export Export) (Progress, error)
	DropLog(ctx context.Context, after time.Duration, limit int, export Export) (int, error)
	DropRefused(ctx context.Context, after time.Duration, limit int, export Export) (int, error)
}

// Auditor proves that the books of a sale are right.
type Auditor interface {
	Audit(ctx context.Context, sale *pipeline.Sale) (*audit.Report, error)
}

// Policy is how long what is kept; 0: for ever.
type Policy struct {
	Sales    time.Duration // in Redis, after they are over
	Orders   time.Duration // of a sale, after it left Redis; at least Least
	AuditLog time.Duration // lines of it; at least Least
	Events   time.Duration // that no endpoint needs any more
}

// Dropper drops what was kept for long enough. A sale is audited first: nothing is dropped that could tell why its
// books are wrong. Each batch is a transaction that adds to the sale's sums what it takes from its rows. So a process
// may die between any two of them, and any number of runs may be at it at once.
type Dropper struct {
	store   Store
	auditor Auditor
	policy  Policy
	export  Export
	log     *slog.Logger
}

// NewDropper returns a Dropper. Export gets each batch before it is dropped; nil: nothing is exported.
func NewDropper(store Store, auditor Auditor, policy Policy, export Export, log *slog.Logger) *Dropper {
	return &Dropper{store: store, auditor: auditor, policy: policy, export: export, log: log}
}

// Job drops what is due. It works for half of the time at most: who orders now comes first.
func (d *Dropper) Job() pipeline.Job {
	return pipeline.Job{Name: "drop", Every: dropEvery, Run: func(ctx context.Context) error {
		return errors.Join(d.store.SetPolicy(ctx, d.policy, d.export != nil), d.dropSales(ctx),
			d.dropByAge(ctx, d.policy.Orders, d.store.DropRefused),
			d.dropByAge(ctx, d.policy.AuditLog, d.store.DropLog))
	}}
}

// dropSales drops the orders of the sales that are due. One that can't be dropped keeps back no other.
func (d *Dropper) dropSales(ctx context.Context) error {
	if d.policy.Orders == 0 {
		return nil
	}
	due, err := d.store.SalesToDrop(ctx, d.policy.Orders, LookAgain, dropSales)
	if err != nil {
		return err
	}
	var failed []error
	for _, sale := range due {
		if ctx.Err() != nil {
			break
		}
		if err := d.dropSale(ctx, sale); err != nil {
			failed = append(failed, fmt.Errorf("drop the orders of sale %s: %w", sale.ID, err))
		}
	}
	return errors.Join(failed...)
}

func (d *Dropper) dropSale(ctx context.Context, sale *pipeline.Sale) error {
	if sale.OrdersDroppedAt.IsZero() {
		why, err := d.Holds(ctx, sale)
		if err != nil {
			return err
		}
		if why != "" {
			d.log.Warn("the orders of a sale are kept for longer than is set", "sale", sale.ID, "reason", why)
			return d.store.HoldDrop(ctx, sale.ID, why)
		}
		if begun, err := d.store.BeginDrop(ctx, sale.ID, d.policy.Orders); err != nil || !begun {
			return err
		}
	}
	for ctx.Err() == nil {
		began := time.Now()
		done, err := d.store.DropBatch(pipeline.Uninterrupted(ctx), sale.ID, dropBatch, d.export)
		switch {
		case err != nil:
			return err
		case done.Finished:
			d.log.Info("the orders of a sale are dropped", "sale", sale.ID)
			return nil
		case done.Held != "":
			d.log.Warn("the rest of a sale's orders is kept for longer than is set", "sale", sale.ID, "reason", done.Held)
			return nil
		}
		retry.Sleep(ctx, time.Since(began))
	}
	return nil // the next run goes on
}

// Holds says what keeps the orders of a sale from being dropped; "" where nothing does. Nothing is changed.
func (d *Dropper) Holds(ctx context.Context, sale *pipeline.Sale) (string, error) {
	holds, err := d.store.DropHolds(ctx, sale.ID)
	if err != nil || holds != (Holds{}) {
		return holds.String(), err
	}
	look, cancel := context.WithTimeout(pipeline.Uninterrupted(ctx), auditTimeout)
	defer cancel()
	report, err := d.auditor.Audit(look, sale)
	switch {
	case err != nil:
		return "", err
	case !report.Clean():
		return "its books are not right: " + report.Findings[0], nil
	case !report.Exact:
		return "orders of it are in flight", nil
	case report.LostReceipts+report.UncheckedReceipts > 0:
		return "receipts of it may be lost", nil
	}
	return "", nil
}

// dropByAge drops rows of no sale, the oldest first.
func (d *Dropper) dropByAge(
	ctx context.Context, after time.Duration, drop func(context.Context, time.Duration, int, Export) (int, error),
) error {
	if after == 0 {
		return nil
	}
	for ctx.Err() == nil {
		began := time.Now()
		dropped, err := drop(pipeline.Uninterrupted(ctx), after, dropBatch, d.export)
		if err != nil || dropped < dropBatch {
			return err
		}
		retry.Sleep(ctx, time.Since(began))
	}
	return nil // the next run goes on
}
