package pipeline_test

import (
	"context"
	"testing"
	"time"

	"sluice/db"
	"sluice/internal/testkit"
	"sluice/pipeline"
)

// interrupted is a Postgres that is asked just when the time of the job that asks is over.
type interrupted struct {
	*db.Store
	over context.CancelFunc
}

func (s *interrupted) ExpireOrders(ctx context.Context, limit int) ([]pipeline.Order, error) {
	s.over()
	return s.Store.ExpireOrders(ctx, limit)
}

func (s *interrupted) MarkReleased(ctx context.Context, releases []pipeline.Release) error {
	s.over()
	return s.Store.MarkReleased(ctx, releases)
}

func (s *interrupted) DecideWaiting(
	ctx context.Context, id int64, sale *pipeline.Sale, absent pipeline.PaymentDecision,
) (pipeline.PaymentRecord, error) {
	s.over()
	return s.Store.DecideWaiting(ctx, id, sale, absent)
}

// TestAStepOfAJobIsFinished (I9): a tick ends, or a worker is told to stop, in the middle of a job's step. What the step did is
// done as a whole, counted and told; nothing more is begun.
func TestAStepOfAJobIsFinished(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{PaymentWindow: time.Hour, UnitPrice: 500, Currency: "EUR"}})
	late, paid := r.admit("late", 1), r.admitMany("paid", 2)
	for i := range paid {
		if got, err := r.payments().Pay(r.ctx(), paymentFor(&paid[i], 0)); err != nil || got.Outcome != pipeline.PaymentWaiting {
			t.Fatalf("got %s, %v, want it to wait", got.Outcome, err)
		}
	}
	r.persist(r.events(r.sale)...)
	r.exec(1, `update orders set pay_by = now() - interval '1 s' where id = $1`, late.OrderID)
	hub, _ := r.runHub(never)
	r.subscribed(1)
	watches := []*pipeline.Watch{r.watch(hub, late.OrderID), r.watch(hub, paid[0].OrderID)}
	for _, w := range watches {
		r.told(w, 1)
	}

	news, store := r.notifier(), &interrupted{Store: r.store}
	run := func(job pipeline.Job) {
		ctx, over := context.WithCancel(r.ctx())
		defer over()
		store.over = over
		_ = job.Run(ctx) // that its time is over may be told
	}
	counts := func(what string, got, want float64) {
		t.Helper()
		if got != want {
			t.Errorf("%s: counted %v, want %v", what, got, want)
		}
	}
	run(r.paymentsWith(store).Job())
	counts("paid", r.labelled("sluice_payments_total", "outcome", "paid"), 1)
	run(pipeline.NewExpirer(store, news, r.metrics.Lifecycle, r.log).Job())
	counts("expired", r.count("sluice_orders_expired_total"), 1)
	run(pipeline.NewReleaser(r.rdb, r.keys, store, r.handOvers(), r.metrics.Lifecycle, r.log).Job())
	counts("given back", r.count("sluice_stock_released_total"), 1)
	for _, w := range watches {
		r.told(w, 2)
	}
	testkit.Eventually(t, settleLimit, "the other payment to be decided", func() bool {
		run(r.paymentsWith(store).Job())
		return r.labelled("sluice_payments_total", "outcome", "paid") == 2
	})
	r.balanced(r.sale, 2)
}
