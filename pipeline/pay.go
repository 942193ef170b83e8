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

// Cashier takes payments: it decides each by its order, or keeps it until the order is stored.
type Cashier struct {
	passage passage
	sales   SaleFinder
	store   PaymentStore
	news    *News
	metrics *Metrics
	log     *slog.Logger
}

// NewCashier returns a Cashier over both stores.
func NewCashier(
	rdb redis.UniversalClient, keys Keys, sales SaleFinder, store PaymentStore, news *News, m *Metrics, log *slog.Logger,
) *Cashier {
	return &Cashier{passage: passage{rdb, keys}, sales: sales, store: store, news: news, metrics: m, log: log}
}

// Pay records a payment and what it did, and returns it as it is recorded. Whatever the outcome: telling of it again, under
// the same webhook id or with the same payment id, changes nothing. An order that is accepted and not stored yet is waited
// for, a second at most; then the payment is kept, and decided by the job.
//
// A payment that breaks a rule is recorded too, as refused. Errors: KindUnavailable, and then nothing was recorded, or the
// answer was lost: tell it again.
func (c *Cashier) Pay(ctx context.Context, p Payment) (Payment, error) {
	if err := p.Validate(); err != nil {
		return c.Refuse(ctx, p, Refusal(ReasonInvalid, "%s", err.Error()))
	}
	sale, err := c.sales.Sale(ctx, p.SaleID)
	if KindOf(err) == KindNotFound {
		return c.Refuse(ctx, p, Refusal(ReasonUnknownSale, "no sale has the id %q", p.SaleID))
	}
	if err != nil {
		return p, err
	}
	until, marks := time.Now().Add(payPatience), newMarks(sale)
	for {
		// The stream first, the row after it: an order that is stored between the two is found.
		absent := c.absent(ctx, sale, marks)
		if absent.Outcome == PaymentWaiting && time.Now().Before(until) {
			absent = PaymentDecision{}
		}
		record, err := c.store.RecordPayment(ctx, p, sale, absent)
		if err != nil {
			return p, err
		}
		if record.Payment.Outcome != "" {
			c.tell(ctx, &p, &record)
			return record.Payment, nil
		}
		sleep(ctx, payLook)
		if ctx.Err() != nil {
			return p, Wrap(KindUnavailable, ctx.Err(), "the payment was not recorded in time; send it again")
		}
	}
}

// absent is what becomes of a payment whose order has no row.
func (c *Cashier) absent(ctx context.Context, sale *Sale, marks marks) PaymentDecision {
	passed, err := c.passage.passed(ctx, sale, marks)
	switch {
	case err != nil:
		c.log.Warn("Redis did not tell whether an order is queued; its payment waits", "sale", sale.ID, "error", err)
		return PaymentDecision{Outcome: PaymentWaiting}
	case !passed:
		return PaymentDecision{Outcome: PaymentWaiting}
	}
	return unknownOrder()
}

func unknownOrder() PaymentDecision {
	return Refusal(ReasonUnknownOrder, "there is no such order in this sale, stored or queued")
}

// Refuse records a payment that fits nothing. What no table could keep is left out of it.
func (c *Cashier) Refuse(ctx context.Context, p Payment, why PaymentDecision) (Payment, error) {
	record, err := c.store.RecordPayment(ctx, p.Readable(), nil, why)
	if err != nil {
		return p, err
	}
	c.tell(ctx, &p, &record)
	return record.Payment, nil
}

// Count counts what is not recorded: what did not prove to come from the provider, because anybody could fill a table with
// it, and what is not about payments.
func (c *Cashier) Count(outcome PaymentOutcome) {
	c.metrics.payments.WithLabelValues(string(outcome)).Inc()
}

// tell counts and logs what became of a payment, and tells whoever waits for its order.
func (c *Cashier) tell(ctx context.Context, given *Payment, record *PaymentRecord) {
	if record.Changed {
		c.news.TellOrders(ctx, []Order{record.Order})
	}
	p := &record.Payment
	if record.Replayed {
		c.Count(PaymentReplayed)
		if p.PaymentID != given.PaymentID && p.Outcome != PaymentRefused {
			c.log.Warn("a webhook id came again with other content, which was not looked at", "payment", p.ID)
		}
		return
	}
	c.Count(p.Outcome)
	level := slog.LevelInfo
	if p.Outcome == PaymentRefused || p.Outcome == PaymentRefundDue {
		level = slog.LevelWarn // somebody's money is concerned
	}
	c.log.Log(ctx, level, "payment", "payment", p.ID, "sale", p.SaleID, "order", p.OrderID, "outcome", p.Outcome, "reason", p.Reason)
}
