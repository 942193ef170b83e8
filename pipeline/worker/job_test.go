package worker_test

import (
	"context"
	"testing"
	"time"

	"sluice/db"
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/notification"
	"sluice/pipeline/payments"
	"sluice/pipeline/pipelinetest"
)

// interrupted is a Postgres that ends the calling job's context with each call.
type interrupted struct {
	*db.Store
	over context.CancelFunc
}

func (s *interrupted) ExpireOrders(ctx context.Context, limit int) ([]pipeline.Order, error) {
	s.over()
	return s.Store.ExpireOrders(ctx, limit)
}

func (s *interrupted) MarkReleasesApplied(ctx context.Context, releases []pipeline.Release) error {
	s.over()
	return s.Store.MarkReleasesApplied(ctx, releases)
}

func (s *interrupted) DecideWaitingPayment(
	ctx context.Context, id int64, sale *pipeline.Sale, absent payments.Decision,
) (payments.Record, error) {
	s.over()
	return s.Store.DecideWaitingPayment(ctx, id, sale, absent)
}

// TestAStepOfAJobIsFinished (I9): a tick ends, or a worker is stopped, in the middle of a job's step. The step is
// completed, counted and published; no further step is begun.
func TestAStepOfAJobIsFinished(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{
		Sale: pipeline.Sale{PaymentWindow: time.Hour, UnitPrice: 500, Currency: "EUR"},
	})
	late, paid := r.Admit("late", 1), r.AdmitMany("paid", 2)
	for i := range paid {
		got, err := r.Payments().Pay(r.Ctx(), pipelinetest.PaymentFor(&paid[i], 0))
		if err != nil || got.Outcome != payments.Waiting {
			t.Fatalf("got %s, %v, want it to wait", got.Outcome, err)
		}
	}
	r.Persist(r.Events(r.Sale)...)
	r.Exec(1, `update orders set pay_by = now() - interval '1 s' where id = $1`, late.OrderID)
	hub, _ := r.RunHub(pipelinetest.Never)
	r.Subscribed(1)
	watches := []*notification.Watch{r.Watch(hub, late.OrderID), r.Watch(hub, paid[0].OrderID)}
	for _, w := range watches {
		r.AwaitVersion(w, 1)
	}

	notifier, store := r.Notifier(), &interrupted{Store: r.Store}
	run := func(job pipeline.Job) {
		ctx, over := context.WithCancel(r.Ctx())
		defer over()
		store.over = over
		_ = job.Run(ctx) // it may report that its context has ended
	}
	counts := func(what string, got, want float64) {
		t.Helper()
		if got != want {
			t.Errorf("%s: counted %v, want %v", what, got, want)
		}
	}
	run(r.PaymentsWith(store).Job())
	counts("paid", r.Labelled("sluice_payments_total", "outcome", "paid"), 1)
	run(lifecycle.NewExpirer(store, notifier, r.Metrics.Lifecycle, r.Logger).Job())
	counts("expired", r.Count("sluice_orders_expired_total"), 1)
	run(lifecycle.NewReleaser(r.Redis, r.Keys, store, r.HandOvers(), r.Metrics.Lifecycle, r.Logger).Job())
	counts("given back", r.Count("sluice_stock_released_total"), 1)
	for _, w := range watches {
		r.AwaitVersion(w, 2)
	}
	testkit.Eventually(t, pipelinetest.SettleLimit, "the other payment to be decided", func() bool {
		run(r.PaymentsWith(store).Job())
		return r.Labelled("sluice_payments_total", "outcome", "paid") == 2
	})
	r.Balanced(r.Sale, 2)
}
