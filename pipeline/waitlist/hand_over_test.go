package waitlist_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/resubmit"
	"sluice/pipeline/worker"
)

// startServing starts a worker that expires, gives back and hands over.
func startServing(r *pipelinetest.Rig) {
	r.Helper()
	releaser := r.Releaser()
	r.StartWorker(r.Store, worker.Options{},
		lifecycle.NewExpirer(r.Store, r.Notifier(), r.Metrics.Lifecycle, r.Logger).Job(),
		releaser.Job(), r.HandOver().Job(r.Catalogue()))
}

// soldOutRig is a rig over a Redis of its own whose sale of one unit is sold to "first", and persisted.
func soldOutRig(t *testing.T) *pipelinetest.Rig {
	t.Helper()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 1, Waitlist: 10}})
	r.Admit("first", 1)
	r.Persist(r.Events(r.Sale)...)
	return r
}

// servedInTurn compares the orders in Postgres with the tickets: the accept counter must grow with them, with no
// inversion.
func servedInTurn(r *pipelinetest.Rig, want int) {
	r.Helper()
	rows, err := r.SQL.Query(r.Ctx(), `select w.ticket, o.sequence, w.left_at is not null from waitlist w
		join orders o on o.sale_id = w.sale_id and o.id = w.order_id order by w.ticket`)
	if err != nil {
		r.Fatal(err)
	}
	defer rows.Close()
	served, inversions := 0, 0
	var last int64
	for rows.Next() {
		var ticket, sequence int64
		var left bool
		if err := rows.Scan(&ticket, &sequence, &left); err != nil {
			r.Fatal(err)
		}
		if left {
			r.Errorf("the buyer with ticket %d has left, and got an order", ticket)
		}
		if sequence < last {
			inversions++
		}
		last = max(last, sequence)
		served++
	}
	if served != want || inversions != 0 {
		r.Errorf("%d served, %d inversions; want %d, 0", served, inversions, want)
	}
}

// TestUnpaidUnitsGoToTheWaitlist is the whole story: sold out, people wait, orders expire unpaid, and their units go to
// those who wait, in turn, round after round, until nobody waits.
func TestUnpaidUnitsGoToTheWaitlist(t *testing.T) {
	t.Parallel()
	const units, people = 10, 35
	r := pipelinetest.New(
		t, pipelinetest.Options{Sale: pipeline.Sale{Total: units, PaymentWindow: 2 * time.Second, Waitlist: 1000}},
	)
	r.AdmitMany("first", units)
	w := r.Waitlist()
	for n := range people {
		if d := r.Joins(w, fmt.Sprint("waits-", n), 1); d.Position != int64(n+1) {
			t.Errorf("position of %d: got %d", n, d.Position)
		}
	}
	r.Balanced(r.Sale, 0)
	startServing(r)
	testkit.Eventually(t, pipelinetest.SettleLimit, "everybody was served", func() bool { return len(r.Queue()) == 0 })
	testkit.Eventually(t, pipelinetest.SettleLimit, "everything has expired", func() bool {
		return r.Stock(r.Sale) == units
	})
	r.Settled()
	servedInTurn(r, people)
	r.Balanced(r.Sale, 0)
	testkit.Eventually(t, pipelinetest.SettleLimit, "all that was handed over is counted", func() bool {
		return r.Count("sluice_waitlist_handovers_total") >= people
	})
	if got := r.Count("sluice_waitlist_handovers_total"); got != people {
		t.Errorf("handed over: got %v, want %d", got, people)
	}
	if got := r.Count("sluice_waitlist_dropped_total"); got != 0 {
		t.Errorf("dropped: got %v", got)
	}
}

// TestAHandedOverOrderThatRedisLost: the order had no row yet and no worker has its event. The buyer waits again, in
// the same position, and gets the unit again, under the same order id.
func TestAHandedOverOrderThatRedisLost(t *testing.T) {
	t.Parallel()
	r := soldOutRig(t)
	w := r.Waitlist()
	ann, bob := r.Joins(w, "ann", 1), r.Joins(w, "bob", 1)
	first := r.Slots(r.Sale)["first"]
	endOrder(r, first.OrderID)
	if err := r.Releaser().Apply(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	if got := r.Slots(r.Sale)["ann"].OrderID; got != ann.Entry.OrderID {
		t.Fatalf("ann's order: got %q, want %q", got, ann.Entry.OrderID)
	}
	if mine, err := w.Mine(r.Ctx(), r.Sale, "ann"); err != nil || !mine.Ordered ||
		mine.Entry.OrderID != ann.Entry.OrderID {
		t.Fatalf("ann: %+v, %v", mine, err)
	}
	r.Flush()
	if _, err := w.Mine(r.Ctx(), r.Sale, "ann"); pipeline.KindOf(err) != pipeline.KindUnavailable {
		t.Errorf("ann while nothing is verified: got %v", err)
	}
	r.Ensure()
	if got := r.Queue(); !slices.Equal(got, []string{"ann", "bob"}) || r.Stock(r.Sale) != 1 {
		t.Fatalf("the waitlist: got %v, stock %d", got, r.Stock(r.Sale))
	}
	if got := r.Rebuilds(); len(got) != 1 || got[0].Waiting != 2 {
		t.Errorf("rebuilds: %+v", got)
	}
	if d, err := r.Try(pipeline.OrderRequest{UserID: "new", Quantity: 1}); err != nil || d.Result != admission.SoldOut {
		t.Errorf("a newcomer before the unit is handed over: %s, %v", d.Result, err)
	}
	job := r.HandOver().Job(r.Catalogue())
	for range 2 {
		if err := job.Run(r.Ctx()); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.Slots(r.Sale)["ann"].OrderID; got != ann.Entry.OrderID || !slices.Equal(r.Queue(), []string{"bob"}) {
		t.Fatalf("ann's order: got %q, want %q; the waitlist: %v", got, ann.Entry.OrderID, r.Queue())
	}
	if d := r.Joins(w, "cy", 1); d.Entry.Ticket <= bob.Entry.Ticket {
		t.Errorf("cy's ticket: got %d, after %d", d.Entry.Ticket, bob.Entry.Ticket)
	}
	r.Persist(r.Events(r.Sale)...)
	r.Balanced(r.Sale, 1)
}

// TestAHandedOverOrderThatAWorkerResubmits: Redis has lost it, and its buyer waits again, when the worker that has read
// the event resubmits it. The order stands, before everybody who waits, and its buyer waits no longer.
func TestAHandedOverOrderThatAWorkerResubmits(t *testing.T) {
	t.Parallel()
	r := soldOutRig(t)
	w := r.Waitlist()
	r.Joins(w, "ann", 1)
	r.Joins(w, "bob", 1)
	endOrder(r, r.Slots(r.Sale)["first"].OrderID)
	if err := r.Releaser().Apply(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	event := r.Events(r.Sale)[0]
	r.Flush()
	r.Ensure()
	keys := r.Keys.ForSale(r.Sale.Partitions[0], r.Sale.ID)
	reply, err := lua.Resubmit(r.Ctx(), r.Redis, keys, r.Sale.ID, []lua.AdmitRequest{{
		OrderID: event.OrderID, Number: event.Number, UserID: event.UserID, Quantity: event.Quantity,
	}})
	if err != nil || reply.Outcomes[0].Code != lua.AdmitAccepted {
		t.Fatalf("resubmitted: %+v, %v", reply, err)
	}
	if got := r.Queue(); !slices.Equal(got, []string{"bob"}) {
		t.Errorf("the waitlist: got %v", got)
	}
	r.Persist(r.Events(r.Sale)...)
	r.Balanced(r.Sale, 1)
}

// TestAHandOverToABuyerWhoLeft: a worker has read a hand-over when Redis loses it, and stands still while its buyer,
// who waits again, leaves. When it goes on, there is no order: the answer to the leave said so.
func TestAHandOverToABuyerWhoLeft(t *testing.T) {
	t.Parallel()
	r := soldOutRig(t)
	w := r.Waitlist()
	r.Joins(w, "ann", 1)
	endOrder(r, r.Slots(r.Sale)["first"].OrderID)
	if err := r.Releaser().Apply(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	read := r.Events(r.Sale)[0]
	r.Flush()
	r.Ensure()
	if _, err := w.Leave(r.Ctx(), r.Sale, "ann"); err != nil {
		t.Fatal(err)
	}
	at := pipeline.SalePartition{SaleID: r.Sale.ID, Partition: read.Partition}
	standings, err := r.Resubmitter().Resubmit(r.Ctx(), at, []pipeline.Accept{{Event: read}})
	if err != nil || standings[0] != resubmit.Left {
		t.Errorf("resubmitted: got %v, %v, want %s", standings, err, resubmit.Left)
	}
	r.WorkAll()
	if _, err := r.Store.Order(r.Ctx(), r.Sale.ID, read.OrderID); pipeline.KindOf(err) != pipeline.KindNotFound {
		t.Errorf("the order: got %v, want none", err)
	}
	r.Balanced(r.Sale, 0)
}

// TestLeavesRaceWithHandOvers: each buyer either has left or has an order, and the answer says which.
func TestLeavesRaceWithHandOvers(t *testing.T) {
	t.Parallel()
	const people = 40
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Total: people, MaxQuantity: people, Waitlist: 100}})
	r.Admit("first", people)
	r.Persist(r.Events(r.Sale)...)
	w := r.Waitlist()
	for n := range people {
		r.Joins(w, fmt.Sprint("waits-", n), 1)
	}
	endOrder(r, r.Slots(r.Sale)["first"].OrderID)
	left := make([]bool, people)
	pipelinetest.Together(people+1, func(i int) {
		if i == people {
			if err := r.Releaser().Apply(r.Ctx()); err != nil {
				t.Error(err)
			}
			return
		}
		got, err := w.Leave(r.Ctx(), r.Sale, fmt.Sprint("waits-", i))
		left[i] = err == nil
		if err != nil && (pipeline.KindOf(err) != pipeline.KindConflict || got.Entry.OrderID == "") {
			t.Errorf("leave: %+v, %v", got, err)
		}
	})
	slots := r.Slots(r.Sale)
	orders := 0
	for n := range people {
		_, ordered := slots[fmt.Sprint("waits-", n)]
		if ordered == left[n] {
			t.Errorf("%d: left %t, has an order %t", n, left[n], ordered)
		}
		if ordered {
			orders++
		}
	}
	t.Logf("%d of %d have left", people-orders, people)
	r.Persist(r.Events(r.Sale)...)
	r.Balanced(r.Sale, int64(orders))
}

// TestNobodyIsServedAfterTheEnd: what comes free after the sale is over is left in stock; a buyer who waits can still
// leave.
func TestNobodyIsServedAfterTheEnd(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 1, Waitlist: 3}})
	r.Admit("first", 1)
	r.Persist(r.Events(r.Sale)...)
	w := r.Waitlist()
	r.Joins(w, "ann", 1)
	closed := pipeline.SaleClosed
	sale, err := r.Publisher.Change(r.Ctx(), r.Sale.ID, "test", pipeline.SaleChange{State: &closed})
	if err != nil {
		t.Fatal(err)
	}
	endOrder(r, r.Slots(r.Sale)["first"].OrderID)
	if err := r.Releaser().Apply(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	if err := r.HandOver().Job(r.Catalogue()).Run(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	if r.Stock(sale) != 1 || len(r.Events(sale)) != 0 {
		t.Errorf("stock %d, events %v", r.Stock(sale), r.Events(sale))
	}
	if mine, err := w.Mine(r.Ctx(), sale, "ann"); err != nil || mine.Position != 1 {
		t.Errorf("ann: %+v, %v", mine, err)
	}
	if _, err := w.Leave(r.Ctx(), sale, "ann"); err != nil {
		t.Error(err)
	}
	r.Balanced(sale, 0)
}

// TestARestockServesTheWaitlist: through the publisher, and counted.
func TestARestockServesTheWaitlist(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 1, Waitlist: 500}})
	r.Admit("first", 1)
	w := r.Waitlist()
	const people = lua.MaxHandOver + 20
	for n := range people {
		r.Joins(w, fmt.Sprint("waits-", n), 1)
	}
	publisher := r.Publisher.Count(r.Metrics.Notification)
	if _, err := publisher.Change(r.Ctx(), r.Sale.ID, "test", pipeline.SaleChange{AddStock: people}); err != nil {
		t.Fatal(err)
	}
	if got := r.Count("sluice_waitlist_handovers_total"); got != lua.MaxHandOver {
		t.Errorf("by the restock: got %v, want %d", got, lua.MaxHandOver)
	}
	if err := r.HandOver().Job(r.Catalogue()).Run(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	r.Persist(r.Events(r.Sale)...)
	servedInTurn(r, people)
	r.Balanced(r.Stored(r.Sale.ID), people+1)
}
