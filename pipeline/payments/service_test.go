package payments_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/payments"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/recovery"
	"sluice/pipeline/worker"
)

// TestPaymentsOvertakeTheirOrders: payments that come while no worker runs wait, and are decided by the jobs of the
// workers that come; no payment counts twice, and what is paid is not given back.
func TestPaymentsOvertakeTheirOrders(t *testing.T) {
	t.Parallel()
	const buyers = 30
	r := pipelinetest.New(
		t,
		pipelinetest.Options{Sale: pipeline.Sale{Total: buyers, PaymentWindow: time.Hour, UnitPrice: 500, Currency: "EUR"}},
	)
	service := r.Payments()
	receipts := r.AdmitMany("buyer", buyers)
	pipelinetest.Together(2*buyers, func(i int) { // each is reported twice
		got, err := service.Pay(r.Ctx(), pipelinetest.PaymentFor(&receipts[i%buyers], i/buyers))
		if err != nil || got.Outcome != payments.Waiting && got.Outcome != payments.Repeated {
			t.Errorf("payment %d: got %s, %v", i, got.Outcome, err)
		}
	})
	for range 2 {
		r.StartWorker(r.Store, worker.Options{}, r.Payments().Job())
	}
	paid := func() (n int) {
		err := r.SQL.QueryRow(r.Ctx(), `select count(*) from orders where status = 'paid'`).Scan(&n)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	testkit.Eventually(t, pipelinetest.SettleLimit, "every order is paid", func() bool { return paid() == buyers })
	r.Settled()
	r.Balanced(r.Sale, buyers)
	for _, outcome := range []string{"waiting", "repeated", "paid"} {
		// What is committed is counted a moment later.
		testkit.Eventually(t, pipelinetest.SettleLimit, "as many counted as "+outcome, func() bool {
			return r.Labelled("sluice_payments_total", "outcome", outcome) >= buyers
		})
		if got := r.Labelled("sluice_payments_total", "outcome", outcome); got != buyers {
			t.Errorf("%s: counted %v, want %d", outcome, got, buyers)
		}
	}
}

// TestPaymentsWhileOrdersFlow: with workers running, a payment right after its accept is answered with the outcome, and
// one for an order that does not exist is refused, although the stream is never empty.
func TestPaymentsWhileOrdersFlow(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(
		t, pipelinetest.Options{Sale: pipeline.Sale{Total: 5000, PaymentWindow: time.Hour, UnitPrice: 500, Currency: "EUR"}},
	)
	service := r.Payments()
	r.StartWorker(r.Store, worker.Options{}, service.Job())
	outcomes := map[payments.Outcome]int{}
	for i := range 20 {
		receipts := r.AdmitMany(fmt.Sprint("buyer-", i), 20)
		got, err := service.Pay(r.Ctx(), pipelinetest.PaymentFor(&receipts[0], 0))
		if err != nil {
			t.Fatal(err)
		}
		outcomes[got.Outcome]++
		nobody := admission.Receipt{
			SaleID:  receipts[1].SaleID,
			OrderID: "0197" + receipts[1].OrderID[4:18] + "-8000-" + fmt.Sprintf("%012d", i),
		}
		got, err = service.Pay(r.Ctx(), pipelinetest.PaymentFor(&nobody, 0))
		if err != nil || got.Outcome != payments.Refused && got.Outcome != payments.Waiting {
			t.Fatalf("an order that does not exist: got %+v, %v", got, err)
		}
	}
	if outcomes[payments.Paid]+outcomes[payments.Waiting] != 20 {
		t.Errorf("got %v, want them paid, or waiting on a machine that is slow", outcomes)
	}
	count := func(query string) (n int) {
		if err := r.SQL.QueryRow(r.Ctx(), query).Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	testkit.Eventually(t, pipelinetest.SettleLimit, "each payment is decided", func() bool {
		return count(`select count(*) from payments where outcome = 'waiting'`) == 0
	})
	paid := count(`select count(*) from payments where outcome = 'paid'`)
	refused := count(`select count(*) from payments where reason = 'unknown-order'`)
	if paid != 20 || refused != 20 {
		t.Errorf("%d paid and %d refused, want 20 each", paid, refused)
	}
}

// TestPaymentWaitsWhileRedisIsNotTrusted: an order that Redis has lost may be resubmitted, so nothing is concluded from
// a stream that is empty until the state is verified.
func TestPaymentWaitsWhileRedisIsNotTrusted(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{PaymentWindow: time.Hour}})
	service := r.Payments()
	receipt, others := r.Admit("ann", 1), r.AdmitMany("other", 9)
	for p := range pipeline.Partition(r.Options.Partitions) {
		if err := r.Redis.Del(r.Ctx(), r.Keys.Orders(p), r.Keys.Trusted(p)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := service.Pay(r.Ctx(), pipelinetest.PaymentFor(&receipt, 0))
	if err != nil || got.Outcome != payments.Waiting {
		t.Fatalf("got %s, %v, want it to wait", got.Outcome, err)
	}
	pipelinetest.Together(len(others), func(i int) {
		if got, err := service.Pay(r.Ctx(), pipelinetest.PaymentFor(&others[i], 0)); err != nil ||
			got.Outcome != payments.Waiting {
			t.Errorf("got %s, %v, want it to wait", got.Outcome, err)
		}
	})
	if err := service.DecideWaitingPayments(r.Ctx()); err == nil || strings.Count(err.Error(), "not verified") != 1 {
		t.Errorf("the job: got %v, want it to say once that Redis is not verified", err)
	}
	if err := recovery.EnsureVerified(r.Ctx(), r.Redis, r.Keys, r.Store, r.Options.Partitions, r.Logger); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, pipelinetest.SettleLimit, "the payment is decided", func() bool {
		if err := service.DecideWaitingPayments(r.Ctx()); err != nil {
			t.Logf("the job: %v", err)
		}
		again, err := service.Pay(r.Ctx(), pipelinetest.PaymentFor(&receipt, 0))
		return err == nil && again.Outcome == payments.Refused && again.Reason == payments.ReasonUnknownOrder
	})
}

// TestPayAfterALostAnswer: a payment whose answer is lost half-way is sent again, and nothing happens twice.
func TestPayAfterALostAnswer(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(
		t, pipelinetest.Options{Sale: pipeline.Sale{PaymentWindow: time.Hour, UnitPrice: 500, Currency: "EUR"}},
	)
	receipt := r.Admit("ann", 1)
	r.Persist(r.Events(r.Sale)...)
	p := pipelinetest.PaymentFor(&receipt, 0)
	paid, gaveUp := 0, 0
	for i := range 40 { // the caller gives up earlier or later in the transaction, or after its commit
		ctx, cancel := context.WithTimeout(r.Ctx(), time.Duration(i)*200*time.Microsecond)
		if got, err := r.Payments().Pay(ctx, p); err != nil {
			gaveUp++
		} else if got.Outcome == payments.Paid {
			paid++
		}
		cancel()
	}
	got, err := r.Payments().Pay(r.Ctx(), p)
	if err != nil || got.Outcome != payments.Paid || got.OrderStatus != pipeline.StatusPaid {
		t.Fatalf("got %+v, %v", got, err)
	}
	var records, version int
	err = r.SQL.QueryRow(r.Ctx(), `select (select count(*) from payments), version from orders`).Scan(&records, &version)
	if err != nil {
		t.Fatal(err)
	}
	if records != 1 || version != 2 || gaveUp == 0 {
		t.Errorf("%d records and version %d after %d answers and %d given up; want 1 and 2", records, version, paid, gaveUp)
	}
}
