package process

import (
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/db"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/audit"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/erasure"
	"sluice/pipeline/idempotency"
	"sluice/pipeline/installation"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/metrics"
	"sluice/pipeline/moves"
	"sluice/pipeline/notification"
	"sluice/pipeline/payments"
	"sluice/pipeline/recovery"
	"sluice/pipeline/resubmit"
	"sluice/pipeline/retention"
	"sluice/pipeline/sales"
	"sluice/pipeline/waitlist"
)

// Parts makes the parts of the pipeline over one pair of stores, wired the same way in every program. Each program
// picks those that it runs.
type Parts struct {
	Redis      redis.UniversalClient
	Keys       pipeline.Keys
	Postgres   *db.Store
	Partitions int
	Fence      *installation.Fence // kept fresh by the programs that run for long
	Metrics    *metrics.Metrics
	Log        *slog.Logger
}

// NewParts makes the parts of a program that exports no metrics.
func NewParts(rdb redis.UniversalClient, postgres *db.Store, partitions int, log *slog.Logger) *Parts {
	return &Parts{
		Redis: rdb, Keys: pipeline.DefaultKeys, Postgres: postgres, Partitions: partitions,
		Fence: installation.NewFence(postgres, 0), Metrics: metrics.New(nil), Log: log,
	}
}

// Notifier publishes which orders changed.
func (p *Parts) Notifier() *notification.Notifier {
	return notification.NewNotifier(p.Redis, p.Keys, p.Log)
}

// HandOverNotifier publishes the orders that scripts made for people on a waitlist.
func (p *Parts) HandOverNotifier() *notification.HandOverNotifier {
	return notification.NewHandOverNotifier(p.Notifier(), p.Metrics.Notification, p.Log)
}

// Publisher defines and changes sales.
func (p *Parts) Publisher() *sales.Publisher {
	return sales.NewPublisher(p.Redis, p.Keys, p.Postgres, p.Partitions, p.Log).Count(p.Metrics.Notification).
		BringWith(p.Mover())
}

// Mover moves units between the partitions of a sale.
func (p *Parts) Mover() *moves.Mover {
	return moves.New(moves.Config{
		Redis: p.Redis, Keys: p.Keys, Store: p.Postgres, Fence: p.Fence, HandOvers: p.HandOverNotifier(),
		Metrics: p.Metrics.Moves, Log: p.Log,
	})
}

// Retirer removes sales from Redis that have been over for so long.
func (p *Parts) Retirer(after time.Duration) *sales.Retirer {
	return sales.NewRetirer(p.Redis, p.Keys, p.Postgres, after, p.Log)
}

// Dropper drops what was kept for long enough. Export gets it before; nil: nobody does.
func (p *Parts) Dropper(policy retention.Policy, export retention.Export) *retention.Dropper {
	return retention.NewDropper(p.Postgres, p.Auditor(), policy, export, p.Log)
}

// Eraser replaces the ids of buyers who asked for it.
func (p *Parts) Eraser() *erasure.Eraser {
	return erasure.NewEraser(p.Redis, p.Keys, p.Postgres, p.Log)
}

// Releaser gives units and slots of ended orders back.
func (p *Parts) Releaser() *lifecycle.Releaser {
	return lifecycle.NewReleaser(p.Redis, p.Keys, p.Postgres, p.HandOverNotifier(), p.Metrics.Lifecycle, p.Log)
}

// HandOver hands free units over to waitlists.
func (p *Parts) HandOver() *waitlist.HandOver {
	return waitlist.NewHandOver(p.Redis, p.Keys, p.HandOverNotifier())
}

// Expirer ends orders that were not paid in time.
func (p *Parts) Expirer() *lifecycle.Expirer {
	return lifecycle.NewExpirer(p.Postgres, p.Notifier(), p.Metrics.Lifecycle, p.Log)
}

// Lookup finds buyers' orders.
func (p *Parts) Lookup() *lifecycle.Lookup { return lifecycle.NewLookup(p.Redis, p.Keys, p.Postgres) }

// Canceller cancels orders.
func (p *Parts) Canceller() *lifecycle.Canceller {
	return lifecycle.NewCanceller(p.Lookup(), p.Postgres, p.Notifier(), p.Metrics.Lifecycle)
}

// Returner takes paid orders back.
func (p *Parts) Returner() *lifecycle.Returner {
	return lifecycle.NewReturner(p.Postgres, p.Notifier(), p.Metrics.Lifecycle)
}

// Extender gives orders more time to pay.
func (p *Parts) Extender() *lifecycle.Extender {
	return lifecycle.NewExtender(p.Postgres, p.Notifier(), p.Metrics.Lifecycle)
}

// Payments takes payments.
func (p *Parts) Payments() *payments.Service {
	return payments.NewService(payments.Config{
		Redis: p.Redis, Keys: p.Keys, Sales: p.Postgres, Store: p.Postgres, Notifier: p.Notifier(),
		Metrics: p.Metrics.Payment, Log: p.Log,
	})
}

// Waitlist answers buyers who wait for units of a sale.
func (p *Parts) Waitlist() *waitlist.Service {
	return waitlist.NewService(p.Redis, p.Keys, p.Postgres, p.Lookup(), p.HandOverNotifier(), p.Metrics.Waitlist)
}

// Requests does what operators ask for with a key once.
func (p *Parts) Requests() *idempotency.Service { return idempotency.New(p.Postgres, p.Log) }

// Burier writes dead letters.
func (p *Parts) Burier() *deadletter.Burier {
	return deadletter.NewBurier(p.Postgres, p.Metrics.DeadLetter, p.Log)
}

// Replayer resolves dead letters.
func (p *Parts) Replayer() *deadletter.Replayer {
	return deadletter.NewReplayer(p.Redis, p.Keys, p.Postgres, p.Releaser(), p.Log)
}

// Resubmitter submits accepts to Redis again that it may have lost.
func (p *Parts) Resubmitter() *resubmit.Resubmitter {
	return resubmit.New(resubmit.Config{
		Redis: p.Redis, Keys: p.Keys, Store: p.Postgres, Burier: p.Burier(), Fence: p.Fence, Metrics: p.Metrics.Resubmit,
		Log: p.Log,
	})
}

// Journaled submits what the journal of an admission holds to Redis again.
func (p *Parts) Journaled(a *admission.Controller) *resubmit.Journaled {
	return resubmit.NewJournaled(p.Resubmitter(), a.Journal(), p.Postgres, a.Settle)
}

// Auditor compares Redis with Postgres.
func (p *Parts) Auditor() *audit.Auditor { return audit.NewAuditor(p.Redis, p.Keys, p.Postgres) }

// VerifierConfig is that of a Verifier which submits nothing again and reports to nobody.
func (p *Parts) VerifierConfig() recovery.VerifierConfig {
	return recovery.VerifierConfig{
		Redis: p.Redis, Keys: p.Keys, Store: p.Postgres, Partitions: p.Partitions, Fence: p.Fence,
		Metrics: p.Metrics.Recovery, Log: p.Log, Ledger: p.Postgres, Burier: p.Burier(),
	}
}

// Repairer mends sales that an audit found wrong.
func (p *Parts) Repairer() *recovery.Repairer {
	return recovery.NewRepairer(p.Postgres, p.Auditor(), recovery.NewVerifier(p.VerifierConfig()), p.Burier(), p.Log)
}

// Reconciler watches over the books of the sales of a catalogue.
func (p *Parts) Reconciler(sales *sales.Catalogue) *recovery.Reconciler {
	return recovery.NewReconciler(recovery.ReconcilerConfig{
		Redis: p.Redis, Keys: p.Keys, Store: p.Postgres, Sales: sales, Partitions: p.Partitions,
		Metrics: p.Metrics.Recovery, Burier: p.Burier(), StepFailed: p.Metrics.Worker.StepFailed, Log: p.Log,
	})
}

// Stock reads the units left.
func (p *Parts) Stock() *sales.StockReader { return sales.NewStockReader(p.Redis, p.Keys) }
