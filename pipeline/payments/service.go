package payments

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/notification"
	"sluice/pipeline/retry"
)

const (
	// payWaitLimit is how long a payment waits for its order to be stored before it is answered with "waiting": some
	// hundred times what a worker takes, unless there is a backlog, and short enough for a provider.
	payWaitLimit = time.Second
	// payPollEvery is how often it tries again meanwhile.
	payPollEvery = 50 * time.Millisecond
)

// Store records payments, each once, together with what they do to their orders.
type Store interface {
	RefundStore
	RecordPayment(ctx context.Context, payment Payment, sale *pipeline.Sale, absent Decision) (Record, error)
	WaitingPayments(ctx context.Context, after int64, limit int) ([]WaitingPayment, error)
	DecideWaitingPayment(ctx context.Context, id int64, sale *pipeline.Sale, absent Decision) (Record, error)
}

// SaleFinder finds one sale, as Postgres has it now: its price may have changed a moment ago.
type SaleFinder interface {
	Sale(ctx context.Context, id string) (*pipeline.Sale, error)
}

// Service takes payments: it decides each by its order, or keeps it until the order is stored.
type Service struct {
	queued   queuedOrders
	sales    SaleFinder
	store    Store
	notifier *notification.Notifier
	metrics  *Metrics
	log      *slog.Logger

	waiting sync.Mutex         // protects looked, and lets one run of the job pass at a time
	looked  map[int64]instants // by payment that waits, from the last run of the job in this process
}

// Config is what a Service works with.
type Config struct {
	Redis    redis.UniversalClient
	Keys     pipeline.Keys
	Sales    SaleFinder
	Store    Store
	Notifier *notification.Notifier
	Metrics  *Metrics // nil: nothing is exported
	Log      *slog.Logger
}

// NewService returns a Service over both stores.
func NewService(c Config) *Service {
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	return &Service{
		queued: queuedOrders{
			c.Redis,
			c.Keys,
		}, sales: c.Sales, store: c.Store, notifier: c.Notifier, metrics: c.Metrics, log: c.Log,
	}
}

// Pay records a payment and what it did, and returns it as it is recorded. Whatever the outcome: reporting it again,
// under the same webhook id or with the same payment id, changes nothing. An order that is accepted and not stored yet
// is waited for, a second at most; then the payment is kept, and decided by the job.
//
// A payment that breaks a rule is recorded too, as refused. Errors: KindUnavailable, and then nothing was recorded, or
// the answer was lost: send it again.
func (s *Service) Pay(ctx context.Context, p Payment) (Payment, error) {
	if err := p.Validate(); err != nil {
		return s.Refuse(ctx, p, Refusal(ReasonInvalid, "%s", err.Error()))
	}
	sale, err := s.sales.Sale(ctx, p.SaleID)
	if pipeline.KindOf(err) == pipeline.KindNotFound {
		return s.Refuse(ctx, p, Refusal(ReasonUnknownSale, "no sale has the id %q", p.SaleID))
	}
	if err != nil {
		return p, err
	}
	until, instants := time.Now().Add(payWaitLimit), newInstants(sale)
	for {
		// The stream first, the row after it: an order that is stored between the two is found.
		absent := s.absent(ctx, sale, instants)
		if absent.Outcome == Waiting && time.Now().Before(until) {
			absent = Decision{}
		}
		if absent.Outcome == Waiting && p.Second { // beside which payment, is not known before the order is
			return p, pipeline.Errorf(
				pipeline.KindUnavailable, "the order is not stored yet; report a second payment of it later",
			)
		}
		record, err := s.store.RecordPayment(ctx, p, sale, absent)
		if err != nil {
			return p, err
		}
		if record.Payment.Outcome != "" {
			s.report(ctx, &p, &record)
			return record.Payment, nil
		}
		retry.Sleep(ctx, payPollEvery)
		if ctx.Err() != nil {
			return p, pipeline.Wrap(pipeline.KindUnavailable, ctx.Err(), "the payment was not recorded in time; send it again")
		}
	}
}

// absent is what becomes of a payment whose order has no row.
func (s *Service) absent(ctx context.Context, sale *pipeline.Sale, seen instants) Decision {
	if !sale.OrdersDroppedAt.IsZero() {
		return Refusal(ReasonOrderDropped, "the orders of this sale are not kept any more; if the money came now, pay it back")
	}
	settled, err := s.queued.settled(ctx, sale, seen)
	switch {
	case err != nil:
		s.log.Warn("Redis did not say whether an order is queued; its payment waits", "sale", sale.ID, "error", err)
		return Decision{Outcome: Waiting}
	case !settled:
		return Decision{Outcome: Waiting}
	}
	return unknownOrder()
}

func unknownOrder() Decision {
	return Refusal(ReasonUnknownOrder, "there is no such order in this sale, stored or queued")
}

// Refuse records a payment that fits nothing. What no table could keep is left out of it.
func (s *Service) Refuse(ctx context.Context, p Payment, why Decision) (Payment, error) {
	record, err := s.store.RecordPayment(ctx, p.Readable(), nil, why)
	if err != nil {
		return p, err
	}
	s.report(ctx, &p, &record)
	return record.Payment, nil
}

// Count counts what is not recorded: what did not prove to come from the provider, because anybody could fill a table
// with it, and what is not about payments.
func (s *Service) Count(outcome Outcome) {
	s.metrics.payments.WithLabelValues(string(outcome)).Inc()
}

// report counts and logs what became of a payment, and publishes the change of its order.
func (s *Service) report(ctx context.Context, given *Payment, record *Record) {
	if record.Changed {
		s.notifier.PublishOrders(ctx, []pipeline.Order{record.Order})
	}
	p := &record.Payment
	if record.Replayed {
		s.Count(Replayed)
		if p.PaymentID != given.PaymentID {
			s.log.Warn("a webhook id came again with other content, which was refused", "payment", p.ID)
		}
		return
	}
	s.Count(p.Outcome)
	if p.Outcome == Unneeded {
		return
	}
	level := slog.LevelInfo
	if p.Outcome == Refused || p.Outcome == RefundDue {
		level = slog.LevelWarn // somebody's money is concerned
	}
	s.log.Log(ctx, level, "payment", "payment", p.ID, "sale", p.SaleID, "order", p.OrderID,
		"outcome", p.Outcome, "reason", p.Reason)
}
