package pipeline

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// payPatience is how long a payment waits for its order to be stored before it is answered with "waiting": some hundred
	// times what a worker takes, unless there is a backlog, and short enough for a provider.
	payPatience = time.Second
	// payLook is how often it looks meanwhile.
	payLook = 50 * time.Millisecond
)

// PaymentStore records payments, each once, together with what they do to their orders.
type PaymentStore interface {
	RecordPayment(ctx context.Context, payment Payment, sale *Sale, absent PaymentDecision) (PaymentRecord, error)
	WaitingPayments(ctx context.Context, after int64, limit int) ([]WaitingPayment, error)
	DecideWaiting(ctx context.Context, id int64, sale *Sale, absent PaymentDecision) (PaymentRecord, error)
}

// SaleFinder finds one sale. Prices are given once, with the sale: one that is remembered will do.
type SaleFinder interface {
	Sale(ctx context.Context, id string) (*Sale, error)
}

// PaymentService takes payments: it decides each by its order, or keeps it until the order is stored.
type PaymentService struct {
	queued   queuedOrders
	sales    SaleFinder
	store    PaymentStore
	notifier *Notifier
	metrics  *PaymentMetrics
	log      *slog.Logger
}

// PaymentConfig is what a PaymentService works with.
type PaymentConfig struct {
	Redis    redis.UniversalClient
	Keys     Keys
	Sales    SaleFinder
	Store    PaymentStore
	Notifier *Notifier
	Metrics  *PaymentMetrics // nil: nothing is exported
	Log      *slog.Logger
}

// NewPaymentService returns a PaymentService over both stores.
func NewPaymentService(c PaymentConfig) *PaymentService {
	if c.Metrics == nil {
		c.Metrics = NewPaymentMetrics(nil)
	}
	return &PaymentService{
		queued: queuedOrders{c.Redis, c.Keys}, sales: c.Sales, store: c.Store, notifier: c.Notifier, metrics: c.Metrics, log: c.Log,
	}
}

// Pay records a payment and what it did, and returns it as it is recorded. Whatever the outcome: telling of it again, under
// the same webhook id or with the same payment id, changes nothing. An order that is accepted and not stored yet is waited
// for, a second at most; then the payment is kept, and decided by the job.
//
// A payment that breaks a rule is recorded too, as refused. Errors: KindUnavailable, and then nothing was recorded, or the
// answer was lost: tell it again.
func (s *PaymentService) Pay(ctx context.Context, p Payment) (Payment, error) {
	if err := p.Validate(); err != nil {
		return s.Refuse(ctx, p, Refusal(ReasonInvalid, "%s", err.Error()))
	}
	sale, err := s.sales.Sale(ctx, p.SaleID)
	if KindOf(err) == KindNotFound {
		return s.Refuse(ctx, p, Refusal(ReasonUnknownSale, "no sale has the id %q", p.SaleID))
	}
	if err != nil {
		return p, err
	}
	until, instants := time.Now().Add(payPatience), newInstants(sale)
	for {
		// The stream first, the row after it: an order that is stored between the two is found.
		absent := s.absent(ctx, sale, instants)
		if absent.Outcome == PaymentWaiting && time.Now().Before(until) {
			absent = PaymentDecision{}
		}
		record, err := s.store.RecordPayment(ctx, p, sale, absent)
		if err != nil {
			return p, err
		}
		if record.Payment.Outcome != "" {
			s.report(ctx, &p, &record)
			return record.Payment, nil
		}
		Sleep(ctx, payLook)
		if ctx.Err() != nil {
			return p, Wrap(KindUnavailable, ctx.Err(), "the payment was not recorded in time; send it again")
		}
	}
}

// absent is what becomes of a payment whose order has no row.
func (s *PaymentService) absent(ctx context.Context, sale *Sale, seen instants) PaymentDecision {
	settled, err := s.queued.settled(ctx, sale, seen)
	switch {
	case err != nil:
		s.log.Warn("Redis did not tell whether an order is queued; its payment waits", "sale", sale.ID, "error", err)
		return PaymentDecision{Outcome: PaymentWaiting}
	case !settled:
		return PaymentDecision{Outcome: PaymentWaiting}
	}
	return unknownOrder()
}

func unknownOrder() PaymentDecision {
	return Refusal(ReasonUnknownOrder, "there is no such order in this sale, stored or queued")
}

// Refuse records a payment that fits nothing. What no table could keep is left out of it.
func (s *PaymentService) Refuse(ctx context.Context, p Payment, why PaymentDecision) (Payment, error) {
	record, err := s.store.RecordPayment(ctx, p.Readable(), nil, why)
	if err != nil {
		return p, err
	}
	s.report(ctx, &p, &record)
	return record.Payment, nil
}

// Count counts what is not recorded: what did not prove to come from the provider, because anybody could fill a table with
// it, and what is not about payments.
func (s *PaymentService) Count(outcome PaymentOutcome) {
	s.metrics.payments.WithLabelValues(string(outcome)).Inc()
}

// report counts and logs what became of a payment, and publishes the change of its order.
func (s *PaymentService) report(ctx context.Context, given *Payment, record *PaymentRecord) {
	if record.Changed {
		s.notifier.PublishOrders(ctx, []Order{record.Order})
	}
	p := &record.Payment
	if record.Replayed {
		s.Count(PaymentReplayed)
		if p.PaymentID != given.PaymentID && p.Outcome != PaymentRefused {
			s.log.Warn("a webhook id came again with other content, which was not looked at", "payment", p.ID)
		}
		return
	}
	s.Count(p.Outcome)
	level := slog.LevelInfo
	if p.Outcome == PaymentRefused || p.Outcome == PaymentRefundDue {
		level = slog.LevelWarn // somebody's money is concerned
	}
	s.log.Log(ctx, level, "payment", "payment", p.ID, "sale", p.SaleID, "order", p.OrderID, "outcome", p.Outcome, "reason", p.Reason)
}
