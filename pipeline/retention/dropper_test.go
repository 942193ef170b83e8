package retention_test

import (
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/payments"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/retention"
	"sluice/pipeline/sales"
)

// settle does what somebody still has to do about a closed sale: what awaits payment gets it, but joy's expires; money
// is refunded, and the letters are discarded.
func settle(c *pipelinetest.ClosedSaleRig) {
	c.Helper()
	bob := c.Orders["bob"]
	if paid, err := c.Payments().Pay(c.Ctx(), pipelinetest.PaymentFor(&bob, 0)); err != nil ||
		paid.Outcome != payments.Paid {
		c.Fatalf("%+v, %v", paid, err)
	}
	c.End(c.Orders["joy"].OrderID)
	for _, user := range []string{"dan", "eve"} {
		refund(c, user)
	}
	discardLetters(c.Rig)
	if err := c.Releaser().Apply(c.Ctx()); err != nil {
		c.Fatal(err)
	}
}

func refund(c *pipelinetest.ClosedSaleRig, user string) {
	c.Helper()
	r := payments.Refund{RefundID: "re_" + user, PaymentID: "pay_" + c.Orders[user].OrderID, Actor: "test"}
	if record, err := c.Store.RecordRefund(c.Ctx(), r); err != nil || record.Refund.Outcome != payments.Refunded {
		c.Fatalf("refund of %s: %+v, %v", user, record, err)
	}
}

func discardLetters(r *pipelinetest.Rig) {
	r.Helper()
	letters, err := r.Store.Letters(r.Ctx(), deadletter.Filter{})
	if err != nil {
		r.Fatal(err)
	}
	for i := range letters {
		how := deadletter.LetterResolution{Resolution: deadletter.Discarded, Actor: "test"}
		if _, err := r.Store.ResolveLetter(r.Ctx(), letters[i].ID, how); err != nil {
			r.Fatal(err)
		}
	}
}

// retire lets a sale leave Redis, a year ago.
func retire(r *pipelinetest.Rig) {
	r.Helper()
	r.Over(r.Sale.ID)
	if err := sales.NewRetirer(r.Redis, r.Keys, r.WorkerStore(), 24*time.Hour, r.Logger).Job().Run(r.Ctx()); err != nil {
		r.Fatal(err)
	}
	r.Exec(1, `update sales set retired_at = now() - interval '365 days' where id = $1 and retired_at is not null`, r.Sale.ID)
	r.Sale = r.Stored(r.Sale.ID)
}

// settled is a sale that has left Redis and owes nothing.
func settled(t *testing.T) *pipelinetest.ClosedSaleRig {
	t.Helper()
	c := pipelinetest.ClosedSale(pipelinetest.New(t, pipelinetest.Options{NoSale: true}))
	settle(c)
	retire(c.Rig)
	return c
}

// run runs the job once.
func run(r *pipelinetest.Rig, export retention.Export) error {
	policy := retention.Policy{Orders: retention.Least, AuditLog: retention.Least}
	err := retention.NewDropper(r.WorkerStore(), r.Auditor, policy, export, r.Logger).Job().Run(r.Ctx())
	r.Sale = r.Stored(r.Sale.ID)
	return err
}

// begin begins to drop a sale, and drops so many batches of one order.
func begin(c *pipelinetest.ClosedSaleRig, batches int) {
	c.Helper()
	if begun, err := c.Store.BeginDrop(c.Ctx(), c.Sale.ID, retention.Least); err != nil || !begun {
		c.Fatalf("begun: %v, %v", begun, err)
	}
	for range batches {
		dropOne(c)
	}
	c.Sale = c.Stored(c.Sale.ID)
}

func dropOne(c *pipelinetest.ClosedSaleRig) retention.Progress {
	c.Helper()
	done, err := c.Store.DropBatch(c.Ctx(), c.Sale.ID, 1, nil)
	if err != nil {
		c.Fatal(err)
	}
	return done
}

func look(r *pipelinetest.Rig) audit.Report {
	r.Helper()
	report, err := r.Auditor.Audit(r.Ctx(), r.Sale)
	if err != nil || !report.PostgresAlone {
		r.Fatalf("got %+v, %v, want a report from Postgres alone", report, err)
	}
	return *report
}

func count(r *pipelinetest.Rig, query string, args ...any) (n int64) {
	r.Helper()
	if err := r.SQL.QueryRow(r.Ctx(), query, args...).Scan(&n); err != nil {
		r.Fatal(err)
	}
	return n
}

// change changes any number of rows.
func change(r *pipelinetest.Rig, query string) {
	r.Helper()
	if _, err := r.SQL.Exec(r.Ctx(), query); err != nil {
		r.Fatal(err)
	}
}

// A sale is dropped one order at a time, and its audit says the same between any two batches as it did before the
// first: so a process may die anywhere.
func TestTheBooksStayProvedWhileASaleIsDropped(t *testing.T) {
	t.Parallel()
	c := settled(t)
	want := look(c.Rig)
	if !want.Clean() || !want.Exact || want.Orders != 9 || want.Live != 2 {
		t.Fatalf("before: got %+v", want)
	}
	begin(c, 0)
	for batch := 1; ; batch++ {
		done := dropOne(c)
		if got := look(c.Rig); !reflect.DeepEqual(got, want) {
			t.Fatalf("after batch %d: got\n%+v, want\n%+v", batch, got, want)
		}
		if done.Finished {
			break
		}
		if batch > 20 {
			t.Fatal("it does not end")
		}
	}
	for _, table := range []string{"orders", "releases", "payments", "refunds", "dead_letters", "waitlist"} {
		if n := count(c.Rig, `select count(*) from `+table); n != 0 {
			t.Errorf("%d rows of %s are left", n, table)
		}
	}
	if got := dropOne(c); !got.Finished {
		t.Errorf("once more: got %+v", got)
	}
	var sums string
	err := c.SQL.QueryRow(c.Ctx(), `
		select string_agg(concat_ws(' ', status, nullif(reason, ''), orders, units, amount, currency), ', '
			order by status, reason) from dropped_orders`).Scan(&sums)
	if want := "expired 2 2 1000 EUR, paid 2 2 1000 EUR, refunded 3 3 1500 EUR, rejected over-limit 1 1 500 EUR, " +
		"rejected redis-lost 1 1 500 EUR"; err != nil || sums != want {
		t.Errorf("sums: got %s, %v, want %s", sums, err, want)
	}
	err = c.SQL.QueryRow(c.Ctx(), `
		select string_agg(concat_ws(' ', outcome, payments, amount, refunded), ', ' order by outcome)
		from dropped_payments`).Scan(&sums)
	if want := "paid 2 1000 0, refunded 3 1500 1500"; err != nil || sums != want {
		t.Errorf("sums of payments: got %s, %v, want %s", sums, err, want)
	}
}

// The job drops what is due, and nothing twice, whatever a run before it did.
func TestTheJobDropsWhatIsDue(t *testing.T) {
	t.Parallel()
	c := settled(t)
	want := look(c.Rig)
	lost := errors.New("no room on the disk")
	if err := run(c.Rig, func(*retention.Batch) error { return lost }); !errors.Is(err, lost) ||
		strings.Contains(err.Error(), "Postgres") {
		t.Fatalf("got %v, want the export's error", err)
	}
	if n := count(c.Rig, `select count(*) from orders`); n != 9 {
		t.Fatalf("%d orders are left of 9 after an export that failed", n)
	}
	var numbers []int64
	var orders int
	for range 2 {
		if err := run(c.Rig, func(b *retention.Batch) error {
			if b.SaleID != "" {
				numbers, orders = append(numbers, b.Number), orders+len(b.Orders)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(c.Rig, `select count(*) from orders`); n != 0 || orders != 9 {
		t.Errorf("%d orders are left, %d were exported", n, orders)
	}
	if !reflect.DeepEqual(numbers, []int64{1, 2}) { // orders, letters
		t.Errorf("got batches %d", numbers)
	}
	if got := look(c.Rig); !reflect.DeepEqual(got, want) || c.Sale.OrdersDroppedAt.IsZero() {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
	report, err := c.Store.Retention(c.Ctx(), retention.Filter{Finished: true, Limit: 10})
	if err != nil || !report.Exported || report.Policy.Orders != retention.Least || len(report.Sales) != 1 {
		t.Fatalf("report: got %+v, %v", report, err)
	}
	if of := report.Sales[0]; of.Dropped != 9 || of.Exported != 9 || of.FinishedAt.IsZero() || of.Held != "" ||
		!report.DueAt(&of).Equal(of.RetiredAt.Add(retention.Least)) {
		t.Errorf("report: got %+v", of)
	}
}

// Any number of workers may drop a sale at once: each row goes once, in a batch of its own number, and is in the sums.
func TestManyDropAtOnce(t *testing.T) {
	t.Parallel()
	c := settled(t)
	want := look(c.Rig)
	begin(c, 0)
	var mu sync.Mutex // protects both
	orders, numbers := map[string]int{}, map[int64]int{}
	var workers errgroup.Group
	for range 4 {
		workers.Go(func() error {
			for {
				var batch retention.Batch
				done, err := c.Store.DropBatch(c.Ctx(), c.Sale.ID, 1, func(b *retention.Batch) error {
					batch = *b
					return nil
				})
				if err != nil || done.Finished {
					return err
				}
				mu.Lock()
				numbers[batch.Number]++
				for i := range batch.Orders {
					orders[batch.Orders[i].ID]++
				}
				mu.Unlock()
			}
		})
	}
	if err := workers.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := look(c.Rig); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
	for id, n := range orders {
		if n != 1 {
			t.Errorf("order %s was dropped %d times", id, n)
		}
	}
	for number, n := range numbers {
		if n != 1 || number > int64(len(numbers)) {
			t.Errorf("%d batches have the number %d of %d", n, number, len(numbers))
		}
	}
	if len(orders) != 9 || len(numbers) < 9 {
		t.Errorf("got %d orders in %d batches, want 9 orders", len(orders), len(numbers))
	}
}

// What somebody still has to do holds a sale back, and it says what that is. What comes due while a sale is dropped is
// kept.
func TestWhatIsOwedHoldsASaleBack(t *testing.T) {
	t.Parallel()
	c := pipelinetest.ClosedSale(pipelinetest.New(t, pipelinetest.Options{NoSale: true}))
	bob, joy := c.Orders["bob"], c.Orders["joy"]
	if _, err := c.Payments().Pay(c.Ctx(), pipelinetest.PaymentFor(&bob, 0)); err != nil {
		t.Fatal(err)
	}
	c.End(joy.OrderID)
	if err := c.Releaser().Apply(c.Ctx()); err != nil {
		t.Fatal(err)
	}
	retire(c.Rig)
	held := func(want string) {
		t.Helper()
		change(c.Rig, `update sale_drops set looked_at = now() - interval '2 hours'`)
		if err := run(c.Rig, nil); err != nil {
			t.Fatal(err)
		}
		var got string
		if err := c.SQL.QueryRow(c.Ctx(), `select held from sale_drops`).Scan(&got); err != nil || got != want {
			t.Fatalf("held back: got %q, %v, want %q", got, err, want)
		}
	}
	held("2 orders are to be refunded; 2 payments wait, or are to be paid back; 2 dead letters wait for an operator")
	discardLetters(c.Rig)
	refund(c, "dan")
	refund(c, "eve")
	c.Exec(1, `update sales set sold = sold + 1 where id = $1`, c.Sale.ID)
	held("its books are not right: Postgres counts 3 units sold, its live orders hold 2")
	c.Exec(1, `update sales set sold = sold - 1 where id = $1`, c.Sale.ID)
	begin(c, 2)
	if got, err := c.Payments().Pay(c.Ctx(), pipelinetest.PaymentFor(&joy, 0)); err != nil ||
		got.Outcome != payments.RefundDue {
		t.Fatalf("a late payment: %+v, %v", got, err)
	}
	held("1 orders are to be refunded; 1 payments wait, or are to be paid back")
	if n := count(c.Rig, `select count(*) from orders`); n != 1 {
		t.Errorf("%d orders are left, want joy's", n)
	}
	if got := look(c.Rig); !got.Clean() {
		t.Errorf("got %+v", got)
	}
	refund(c, "joy")
	held("")
	if got := look(c.Rig); !got.Clean() || count(c.Rig, `select count(*) from orders`) != 0 {
		t.Errorf("got %+v", got)
	}
}

// tamperings are what no program does to a sale of which two orders were dropped, ann's and bob's.
var tamperings = []struct {
	name, query string
	findings    []string
}{
	{
		"an order dropped by hand", `with gone as (delete from orders where user_id = 'fay' returning id)
			delete from releases where order_id in (select id from gone)`, []string{"1 accepts have no order"},
	},
	{
		"an order dropped, and added to no sum of orders", `with gone as (delete from orders where user_id = 'fay' returning id),
			released as (delete from releases where order_id in (select id from gone) returning sequence)
			update dropped_accepts set sequences = sequences + int8multirange(int8range(sequence, sequence, '[]')) from released`,
		[]string{"off by 1 accepts"},
	},
	{
		"a sum without orders", `delete from dropped_orders`,
		[]string{"counts 2 units sold, its live orders hold 0", "off by 2 accepts", "off by 2 of paid orders"},
	},
	{
		"orders more in a sum", `update dropped_orders set orders = orders + 1`,
		[]string{"off by 1 accepts", "off by 1 of paid orders"},
	},
	{
		"units more in a sum", `update dropped_orders set units = units + 1`,
		[]string{"counts 2 units sold, its live orders hold 3"},
	},
	{
		"a sum of another status", `update dropped_orders set status = 'expired'`,
		[]string{"counts 2 units sold, its live orders hold 0", "off by 2 units", "off by 2 of paid orders"},
	},
	{
		"payments dropped without a sum", `delete from dropped_payments`, []string{"off by 2 of paid orders"},
	},
	{
		"accepts forgotten", `update dropped_accepts set sequences = '{}'`,
		[]string{"1 accepts have no order", "off by 2 accepts"},
	},
	{
		"an order that comes back", `insert into orders (sale_id, id, number, user_id, quantity, status, partition, sequence,
			accepted_at) values ('closed', gen_random_uuid(), 99999, 'ann', 1, 'confirmed', 1, 1, now())`,
		[]string{"counts 2 units sold, its live orders hold 3", "1 orders share their accept"},
	},
	{
		"a watermark before what was dropped", `update watermarks set seq = 1`,
		[]string{"were never counted"},
	},
	{
		"more accepts explained than were", `update dropped_accepts set missing = 0`, []string{"accepts have no order"},
	},
}

func TestEveryTamperingOfSumsIsFound(t *testing.T) {
	t.Parallel()
	for _, test := range tamperings {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := settled(t)
			begin(c, 2)
			if got := look(c.Rig); !got.Clean() {
				t.Fatalf("before: %+v", got)
			}
			change(c.Rig, test.query)
			got := look(c.Rig).Findings
			if len(got) != len(test.findings) {
				t.Fatalf("got findings %q, want %q", got, test.findings)
			}
			for i, says := range test.findings {
				if !strings.Contains(got[i], says) {
					t.Errorf("got finding %q, want %q", got[i], says)
				}
			}
		})
	}
}

// Of orders that were dropped, nothing comes back, and nothing is lost silently.
func TestWhatComesLateForADroppedOrder(t *testing.T) {
	t.Parallel()
	c := settled(t)
	want := look(c.Rig)
	if err := run(c.Rig, nil); err != nil {
		t.Fatal(err)
	}
	ann := c.Orders["ann"]
	if _, err := c.Store.Order(c.Ctx(), c.Sale.ID, ann.OrderID); pipeline.KindOf(err) != pipeline.KindNotFound {
		t.Errorf("the order: %v", err)
	}
	_, err := lifecycle.NewLookup(c.Redis, c.Keys, c.Store).Mine(c.Ctx(), c.Sale, "ann")
	pipelinetest.WantKind(t, err, pipeline.KindNotFound)
	for range 2 {
		late := pipelinetest.PaymentFor(&ann, 7)
		got, err := c.Payments().Pay(c.Ctx(), late)
		if err != nil || got.Outcome != payments.Refused || got.Reason != payments.ReasonOrderDropped || got.ID == 0 {
			t.Errorf("a late payment: got %+v, %v", got, err)
		}
	}
	back := payments.Refund{WebhookID: "msg_re", RefundID: "re_ann", PaymentID: "pay_" + ann.OrderID, Actor: "webhook"}
	if got, err := c.Store.RecordRefund(c.Ctx(), back); err != nil || got.Refund.Reason != payments.ReasonUnknownPayment {
		t.Errorf("a late refund: got %+v, %v", got, err)
	}
	if n := count(c.Rig, `select count(*) from payments`) + count(c.Rig, `select count(*) from refunds`); n != 2 {
		t.Errorf("%d reports are on record, want both", n)
	}
	old := pipeline.Event{
		SaleID: c.Sale.ID, OrderID: ann.OrderID, UserID: "ann", Quantity: 1, Number: 1, Partition: 1, Sequence: 1,
		AcceptedAt: time.Now(),
	}
	g, err := c.Store.Generation(c.Ctx())
	if err != nil {
		t.Fatal(err)
	}
	outcomes, err := c.Store.PersistOrders(c.Ctx(), g, []pipeline.Event{old})
	if err != nil || outcomes[0] != pipeline.PersistRedelivered {
		t.Errorf("an event of an older Redis: got %q, %v", outcomes, err)
	}
	letter := deadletter.Message{Partition: 1, EntryID: "9-9", SaleID: c.Sale.ID, OrderID: ann.OrderID, Reason: "refused"}
	if err := c.Store.BuryEvent(c.Ctx(), letter, &old); err != nil || count(c.Rig, `select count(*) from orders`) != 0 {
		t.Errorf("a letter made an order: %v", err)
	}
	discardLetters(c.Rig)
	soon := time.Now().Add(time.Hour)
	for _, change := range []pipeline.SaleChange{{ClosesAt: &soon}, {AddStock: 1}} {
		_, err := c.Store.ChangeSale(c.Ctx(), c.Sale.ID, "test", change)
		if pipelinetest.WantKind(t, err, pipeline.KindConflict); !strings.Contains(err.Error(), "create a new sale") {
			t.Errorf("got %v", err)
		}
	}
	note := "of last year"
	if _, err := c.Store.ChangeSale(c.Ctx(), c.Sale.ID, "test", pipeline.SaleChange{Note: &note}); err != nil {
		t.Errorf("a note: %v", err)
	}
	known := pipeline.OrderKey{SaleID: c.Sale.ID, OrderID: ann.OrderID}
	if left, err := c.Store.UnsettledOrders(c.Ctx(), []pipeline.OrderKey{known}); err != nil || len(left) != 0 {
		t.Errorf("a journal would keep %v for ever, %v", left, err)
	}
	if got := look(c.Rig); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
	change(c.Rig, `update payments set received_at = received_at - interval '31 days'`)
	change(c.Rig, `update refunds set received_at = received_at - interval '31 days'`)
	change(c.Rig, `update dead_letters set resolved_at = resolved_at - interval '31 days'`)
	if err := run(c.Rig, nil); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"payments", "refunds", "dead_letters"} {
		if n := count(c.Rig, `select count(*) from `+table); n != 0 {
			t.Errorf("%d rows of %s are left", n, table)
		}
	}
}

// Lines of the audit log go by their age, and a sale that is to be sold again is not dropped.
func TestWhatIsYoungIsKept(t *testing.T) {
	t.Parallel()
	c := settled(t)
	change(c.Rig, `update audit_log set at = now() - interval '31 days' where id < (select max(id) from audit_log)`)
	c.Exec(1, `update sales set retired_at = now() - interval '29 days' where id = $1`, c.Sale.ID)
	if err := run(c.Rig, nil); err != nil {
		t.Fatal(err)
	}
	orders, lines := count(c.Rig, `select count(*) from orders`), count(c.Rig, `select count(*) from audit_log`)
	if orders != 9 || lines != 1 {
		t.Errorf("got %d orders and %d lines, want 9 and the last one", orders, lines)
	}
	c.Exec(1, `update sales set retired_at = null, cleared_in = null where id = $1`, c.Sale.ID)
	if begun, err := c.Store.BeginDrop(c.Ctx(), c.Sale.ID, retention.Least); begun || err != nil {
		t.Errorf("a sale that is to be sold again: begun %v, %v", begun, err)
	}
}
