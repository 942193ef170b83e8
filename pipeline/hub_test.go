package pipeline_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/internal/testkit"
	"sluice/pipeline"
)

// untold expects that nothing was told: by now, since the watches beside it were.
func (r *rig) untold(w *pipeline.Watch) {
	r.Helper()
	select {
	case order := <-w.Changes():
		r.Errorf("told of %+v, want nothing", order)
	default:
	}
}

// TestHubTells: those who watch an order are told of it, once for each change, by a worker's news; nobody else is.
func TestHubTells(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{PaymentWindow: time.Hour}})
	hub, _ := r.runHub(never)
	r.subscribed(1)
	stored := r.admit("stored", 1)
	r.persist(r.events(r.sale)...)
	receipts := r.admitMany("buyer", 3)
	first, again, other := r.watch(hub, receipts[0].OrderID), r.watch(hub, receipts[0].OrderID), r.watch(hub, receipts[1].OrderID)
	stranger := r.watch(hub, uuid.NewString())
	// Whoever begins to watch is looked up once. These looks are over: what is told from here on is told by news.
	last := r.watch(hub, stored.OrderID)
	r.told(last, 1)
	last.Close()
	r.startWorker(r.store, pipeline.WorkerOptions{})
	for _, w := range []*pipeline.Watch{first, again, other} {
		r.told(w, 1)
	}
	again.Close()
	again.Close()
	news := r.notifier()
	canceller := pipeline.NewCanceller(pipeline.NewLookup(r.rdb, r.keys, r.store), r.store, news, r.metrics.Lifecycle)
	cancelled, err := canceller.Cancel(r.ctx(), r.sale, "buyer-0", receipts[0].OrderID)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.told(first, 2); got != cancelled {
		t.Errorf("got %+v, want %+v", got, cancelled)
	}
	// The same news again is none, and a late watcher is told what is.
	news.PublishOrders(r.ctx(), []pipeline.Order{cancelled, cancelled})
	r.told(r.watch(hub, receipts[0].OrderID), 2)
	for _, w := range []*pipeline.Watch{first, again, other, stranger} {
		r.untold(w)
	}
	if got := r.count("sluice_push_waiting"); got != 4 {
		t.Errorf("waiting: got %v, want 4", got)
	}
	if got := r.count("sluice_push_delay_seconds"); got < 3 {
		t.Errorf("delays: got %v, want at least 3", got)
	}
}

// TestHubFindsLostNews: a change that nobody told of is found by the sweep, among more orders than one query takes.
func TestHubFindsLostNews(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: 2000}})
	hub, _ := r.runHub(pipeline.HubConfig{SweepEvery: 50 * time.Millisecond})
	r.subscribed(1)
	var watches []*pipeline.Watch
	for crowd := range 6 { // one of 1,200 would find a busy machine too slow
		for _, receipt := range r.admitMany(fmt.Sprintf("buyer-%d", crowd), 200) {
			watches = append(watches, r.watch(hub, receipt.OrderID))
		}
	}
	r.persist(r.events(r.sale)...)
	for _, w := range watches {
		r.told(w, 1)
	}
}

// TestHubSubscribesAgain: its connection cut by the server, and the server itself killed and started again; what changed
// meanwhile is told at once when it listens again, without any sweep, and news is heard as before.
func TestHubSubscribesAgain(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL()})
	hub, _ := r.runHub(never)
	r.subscribed(1)
	receipts := r.admitMany("buyer", 3)
	events := r.events(r.sale)
	news := r.notifier()
	tell := func(e pipeline.Event) {
		r.persist(e)
		news.Publish(r.ctx(), []pipeline.Changed{{Partition: e.Partition, SaleID: e.SaleID, OrderID: e.OrderID}})
	}
	watches := map[string]*pipeline.Watch{}
	for _, receipt := range receipts {
		watches[receipt.OrderID] = r.watch(hub, receipt.OrderID)
	}

	killed, err := r.rdb.ClientKillByFilter(r.ctx(), "TYPE", "pubsub").Result()
	if err != nil || killed != 1 {
		t.Fatalf("killed %d subscriptions, %v, want 1", killed, err)
	}
	r.subscribed(1)
	tell(events[0])
	r.told(watches[events[0].OrderID], 1)

	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.PersistOrders(r.ctx(), r.generation(), events[1:2]); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.told(watches[events[1].OrderID], 1)
	tell(events[2])
	r.told(watches[events[2].OrderID], 1)
}

// TestHubWithoutPostgres: news that comes while Postgres is away is told once it is back.
func TestHubWithoutPostgres(t *testing.T) {
	t.Parallel()
	postgres := testkit.PrivatePostgres(t)
	r := newRig(t, rigOptions{DatabaseURL: postgres.URL()})
	hub, _ := r.runHub(never)
	r.subscribed(1)
	receipt := r.admit("ann", 1)
	r.persist(r.events(r.sale)...)
	w := r.watch(hub, receipt.OrderID)
	r.told(w, 1)
	if tag, err := r.raw.Exec(r.ctx(), `update orders set status = 'cancelled', closed_at = now()`); err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("cancel: %v, %v", tag, err)
	}
	if err := postgres.Kill(); err != nil {
		t.Fatal(err)
	}
	changed := []pipeline.Changed{{Partition: r.sale.Partitions[0], SaleID: r.sale.ID, OrderID: receipt.OrderID}}
	r.notifier().Publish(r.ctx(), changed)
	late := r.watch(hub, receipt.OrderID)
	if err := postgres.Restart(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.told(w, 2)
	r.told(late, 2)
}

// TestHubKeepsTheNewest: a watcher that does not look holds up nobody, and finds only the last status.
func TestHubKeepsTheNewest(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{PaymentWindow: time.Hour}})
	hub, stop := r.runHub(never)
	r.subscribed(1)
	receipt := r.admit("ann", 1)
	slow, quick := r.watch(hub, receipt.OrderID), r.watch(hub, receipt.OrderID)
	change := func(version int) {
		r.notifier().Publish(r.ctx(),
			[]pipeline.Changed{{Partition: r.sale.Partitions[0], SaleID: r.sale.ID, OrderID: receipt.OrderID}})
		r.told(quick, version)
	}
	r.persist(r.events(r.sale)...)
	change(1)
	for i, status := range []string{"cancelled", "refund_due"} {
		r.exec(1, `update orders set status = $1, closed_at = now()`, status)
		change(i + 2)
	}
	if got := r.told(slow, 3); got.Status != pipeline.StatusRefundDue {
		t.Errorf("got %s", got.Status)
	}
	stop()
	if _, open := <-slow.Changes(); open {
		t.Error("the watch is open after the hub's end")
	}
	_, err := hub.Watch(r.sale.ID, receipt.OrderID, 0)
	wantKind(t, err, pipeline.KindUnavailable)
	slow.Close()
}

// TestHubLimits: of the process and of one order.
func TestHubLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	hub, _ := r.runHub(pipeline.HubConfig{Limit: 17})
	id := uuid.NewString()
	var all []*pipeline.Watch
	for range 16 {
		all = append(all, r.watch(hub, id))
	}
	_, err := hub.Watch(r.sale.ID, id, 0)
	wantKind(t, err, pipeline.KindOverloaded)
	if !strings.Contains(err.Error(), "this order") {
		t.Errorf("got %v", err)
	}
	r.watch(hub, uuid.NewString())
	_, err = hub.Watch(r.sale.ID, uuid.NewString(), 0)
	wantKind(t, err, pipeline.KindOverloaded)
	all[0].Close()
	r.watch(hub, id)
}
