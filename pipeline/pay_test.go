package pipeline_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
)

// TestPaymentsOvertakeTheirOrders: payments that come while no worker runs wait, and are decided by the jobs of the workers
// that come; no money counts twice, and what is paid is not given back.
func TestPaymentsOvertakeTheirOrders(t *testing.T) {
	t.Parallel()
	const buyers = 30
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: buyers, PaymentWindow: time.Hour, UnitPrice: 500, Currency: "EUR"}})
	service := r.payments()
	receipts := r.admitMany("buyer", buyers)
	together(2*buyers, func(i int) { // each is told of twice
		got, err := service.Pay(r.ctx(), paymentFor(&receipts[i%buyers], i/buyers))
		if err != nil || got.Outcome != pipeline.PaymentWaiting && got.Outcome != pipeline.PaymentRepeated {
			t.Errorf("payment %d: got %s, %v", i, got.Outcome, err)
		}
	})
	for range 2 {
		r.startWorker(r.store, pipeline.WorkerOptions{}, r.payments().Job())
	}
	paid := func() (n int) {
		err := r.raw.QueryRow(r.ctx(), `select count(*) from orders where status = 'paid'`).Scan(&n)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	testkit.Eventually(t, settleLimit, "every order is paid", func() bool { return paid() == buyers })
	r.settled()
	r.balanced(r.sale, buyers)
	for _, outcome := range []string{"waiting", "repeated", "paid"} {
		// What is committed is counted a moment later.
		testkit.Eventually(t, settleLimit, "as many counted as "+outcome, func() bool {
			return r.labelled("sluice_payments_total", "outcome", outcome) >= buyers
		})
		if got := r.labelled("sluice_payments_total", "outcome", outcome); got != buyers {
			t.Errorf("%s: counted %v, want %d", outcome, got, buyers)
		}
	}
}

// TestPaymentsWhileOrdersFlow: with workers running, a payment right after its accept is answered with the outcome, and one
// for an order that does not exist is refused, although the stream is never empty.
func TestPaymentsWhileOrdersFlow(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: 5000, PaymentWindow: time.Hour, UnitPrice: 500, Currency: "EUR"}})
	service := r.payments()
	r.startWorker(r.store, pipeline.WorkerOptions{}, service.Job())
	outcomes := map[pipeline.PaymentOutcome]int{}
	for i := range 20 {
		receipts := r.admitMany(fmt.Sprint("buyer-", i), 20)
		got, err := service.Pay(r.ctx(), paymentFor(&receipts[0], 0))
		if err != nil {
			t.Fatal(err)
		}
		outcomes[got.Outcome]++
		nobody := pipeline.Receipt{SaleID: receipts[1].SaleID, OrderID: "0197" + receipts[1].OrderID[4:18] + "-8000-" + fmt.Sprintf("%012d", i)}
		got, err = service.Pay(r.ctx(), paymentFor(&nobody, 0))
		if err != nil || got.Outcome != pipeline.PaymentRefused && got.Outcome != pipeline.PaymentWaiting {
			t.Fatalf("an order that does not exist: got %+v, %v", got, err)
		}
	}
	if outcomes[pipeline.PaymentPaid]+outcomes[pipeline.PaymentWaiting] != 20 {
		t.Errorf("got %v, want them paid, or waiting on a machine that is slow", outcomes)
	}
	count := func(query string) (n int) {
		if err := r.raw.QueryRow(r.ctx(), query).Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	testkit.Eventually(t, settleLimit, "each payment is decided", func() bool {
		return count(`select count(*) from payments where outcome = 'waiting'`) == 0
	})
	if paid, refused := count(`select count(*) from payments where outcome = 'paid'`), count(`select count(*) from payments where reason = 'unknown-order'`); paid != 20 || refused != 20 {
		t.Errorf("%d paid and %d refused, want 20 each", paid, refused)
	}
}

// TestPaymentWaitsWhileRedisIsNotTrusted: an order that Redis has lost may be shown to it again, so nothing is concluded from
// a stream that is empty until the state is verified.
func TestPaymentWaitsWhileRedisIsNotTrusted(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{PaymentWindow: time.Hour}})
	service := r.payments()
	receipt, others := r.admit("ann", 1), r.admitMany("other", 9)
	for p := range pipeline.Partition(r.opts.Partitions) {
		if err := r.rdb.Del(r.ctx(), r.keys.Orders(p), r.keys.Trusted(p)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := service.Pay(r.ctx(), paymentFor(&receipt, 0))
	if err != nil || got.Outcome != pipeline.PaymentWaiting {
		t.Fatalf("got %s, %v, want it to wait", got.Outcome, err)
	}
	together(len(others), func(i int) {
		if got, err := service.Pay(r.ctx(), paymentFor(&others[i], 0)); err != nil || got.Outcome != pipeline.PaymentWaiting {
			t.Errorf("got %s, %v, want it to wait", got.Outcome, err)
		}
	})
	if err := service.DecideWaiting(r.ctx()); err == nil || strings.Count(err.Error(), "not verified") != 1 {
		t.Errorf("the job: got %v, want it to say once that Redis is not verified", err)
	}
	if err := pipeline.EnsureVerified(r.ctx(), r.rdb, r.keys, r.store, r.opts.Partitions, r.log); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, settleLimit, "the payment is decided", func() bool {
		if err := service.DecideWaiting(r.ctx()); err != nil {
			t.Logf("the job: %v", err)
		}
		again, err := service.Pay(r.ctx(), paymentFor(&receipt, 0))
		return err == nil && again.Outcome == pipeline.PaymentRefused && again.Reason == pipeline.ReasonUnknownOrder
	})
}

// A payment whose answer is lost half-way is told again, and nothing happens twice.
func TestPayAfterALostAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{PaymentWindow: time.Hour, UnitPrice: 500, Currency: "EUR"}})
	receipt := r.admit("ann", 1)
	r.persist(r.events(r.sale)...)
	p := paymentFor(&receipt, 0)
	paid, gaveUp := 0, 0
	for i := range 40 { // whoever asks gives up earlier or later in the transaction, or after its commit
		ctx, cancel := context.WithTimeout(r.ctx(), time.Duration(i)*200*time.Microsecond)
		if got, err := r.payments().Pay(ctx, p); err != nil {
			gaveUp++
		} else if got.Outcome == pipeline.PaymentPaid {
			paid++
		}
		cancel()
	}
	got, err := r.payments().Pay(r.ctx(), p)
	if err != nil || got.Outcome != pipeline.PaymentPaid || got.OrderStatus != pipeline.StatusPaid {
		t.Fatalf("got %+v, %v", got, err)
	}
	var records, version int
	if err := r.raw.QueryRow(r.ctx(), `select (select count(*) from payments), version from orders`).Scan(&records, &version); err != nil {
		t.Fatal(err)
	}
	if records != 1 || version != 2 || gaveUp == 0 {
		t.Errorf("%d records and version %d after %d answers and %d given up; want 1 and 2", records, version, paid, gaveUp)
	}
}
