package notification_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/notification"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/worker"
)

// wantNoChange expects that nothing was delivered: by now it would have been, since the watches beside it got theirs.
func wantNoChange(r *pipelinetest.Rig, w *notification.Watch) {
	r.Helper()
	select {
	case order := <-w.Changes():
		r.Errorf("got %+v, want nothing", order)
	default:
	}
}

// TestHubDeliversChanges: those who watch an order get each of its changes once, by a worker's message; nobody else
// does.
func TestHubDeliversChanges(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{PaymentWindow: time.Hour}})
	hub, _ := r.RunHub(pipelinetest.Never)
	r.Subscribed(1)
	stored := r.Admit("stored", 1)
	r.Persist(r.Events(r.Sale)...)
	receipts := r.AdmitMany("buyer", 3)
	first, again, other := r.Watch(
		hub, receipts[0].OrderID,
	), r.Watch(
		hub, receipts[0].OrderID,
	), r.Watch(
		hub, receipts[1].OrderID,
	)
	stranger := r.Watch(hub, uuid.NewString())
	// Each order is looked up once when a watch begins. These looks are over: what is delivered from here on is delivered
	// by messages.
	last := r.Watch(hub, stored.OrderID)
	r.AwaitVersion(last, 1)
	last.Close()
	r.StartWorker(r.Store, worker.Options{})
	for _, w := range []*notification.Watch{first, again, other} {
		r.AwaitVersion(w, 1)
	}
	again.Close()
	again.Close()
	notifier := r.Notifier()
	canceller := lifecycle.NewCanceller(
		lifecycle.NewLookup(r.Redis, r.Keys, r.Store), r.Store, notifier, r.Metrics.Lifecycle,
	)
	cancelled, err := canceller.Cancel(r.Ctx(), r.Sale, "buyer-0", receipts[0].OrderID)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.AwaitVersion(first, 2); got != cancelled {
		t.Errorf("got %+v, want %+v", got, cancelled)
	}
	// The same message again delivers nothing, and a late watcher gets what is.
	notifier.PublishOrders(r.Ctx(), []pipeline.Order{cancelled, cancelled})
	r.AwaitVersion(r.Watch(hub, receipts[0].OrderID), 2)
	for _, w := range []*notification.Watch{first, again, other, stranger} {
		wantNoChange(r, w)
	}
	if got := r.Count("sluice_push_waiting"); got != 4 {
		t.Errorf("waiting: got %v, want 4", got)
	}
	if got := r.Count("sluice_push_delay_seconds"); got < 3 {
		t.Errorf("delays: got %v, want at least 3", got)
	}
}

// TestHubFindsUnpublishedChanges: a change that nobody published is found by the sweep, among more orders than one
// query takes.
func TestHubFindsUnpublishedChanges(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 2000}})
	hub, _ := r.RunHub(notification.HubConfig{SweepEvery: 50 * time.Millisecond})
	r.Subscribed(1)
	var watches []*notification.Watch
	for crowd := range 6 { // one of 1,200 would find a busy machine too slow
		for _, receipt := range r.AdmitMany(fmt.Sprintf("buyer-%d", crowd), 200) {
			watches = append(watches, r.Watch(hub, receipt.OrderID))
		}
	}
	r.Persist(r.Events(r.Sale)...)
	for _, w := range watches {
		r.AwaitVersion(w, 1)
	}
}

// TestHubSubscribesAgain: its connection cut by the server, and the server itself killed and started again; what
// changed meanwhile is delivered at once when it listens again, without any sweep, and messages arrive as before.
func TestHubSubscribesAgain(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL()})
	hub, _ := r.RunHub(pipelinetest.Never)
	r.Subscribed(1)
	receipts := r.AdmitMany("buyer", 3)
	events := r.Events(r.Sale)
	notifier := r.Notifier()
	persistAndPublish := func(e pipeline.Event) {
		r.Persist(e)
		notifier.Publish(r.Ctx(), []notification.Change{{Partition: e.Partition, SaleID: e.SaleID, OrderID: e.OrderID}})
	}
	watches := map[string]*notification.Watch{}
	for _, receipt := range receipts {
		watches[receipt.OrderID] = r.Watch(hub, receipt.OrderID)
	}

	killed, err := r.Redis.ClientKillByFilter(r.Ctx(), "TYPE", "pubsub").Result()
	if err != nil || killed != 1 {
		t.Fatalf("killed %d subscriptions, %v, want 1", killed, err)
	}
	r.Subscribed(1)
	persistAndPublish(events[0])
	r.AwaitVersion(watches[events[0].OrderID], 1)

	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Store.PersistOrders(r.Ctx(), r.Generation(), events[1:2]); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	r.AwaitVersion(watches[events[1].OrderID], 1)
	persistAndPublish(events[2])
	r.AwaitVersion(watches[events[2].OrderID], 1)
}

// TestHubWithoutPostgres: a change that is published while Postgres is away is delivered once it is back.
func TestHubWithoutPostgres(t *testing.T) {
	t.Parallel()
	postgres := testkit.PrivatePostgres(t)
	r := pipelinetest.New(t, pipelinetest.Options{DatabaseURL: postgres.URL()})
	hub, _ := r.RunHub(pipelinetest.Never)
	r.Subscribed(1)
	receipt := r.Admit("ann", 1)
	r.Persist(r.Events(r.Sale)...)
	w := r.Watch(hub, receipt.OrderID)
	r.AwaitVersion(w, 1)
	if tag, err := r.SQL.Exec(r.Ctx(), `update orders set status = 'cancelled', closed_at = now()`); err != nil ||
		tag.RowsAffected() != 1 {
		t.Fatalf("cancel: %v, %v", tag, err)
	}
	if err := postgres.Kill(); err != nil {
		t.Fatal(err)
	}
	changed := []notification.Change{{Partition: r.Sale.Partitions[0], SaleID: r.Sale.ID, OrderID: receipt.OrderID}}
	r.Notifier().Publish(r.Ctx(), changed)
	late := r.Watch(hub, receipt.OrderID)
	if err := postgres.Restart(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	r.AwaitVersion(w, 2)
	r.AwaitVersion(late, 2)
}

// TestHubKeepsTheNewest: a watcher that does not look delays nobody, and finds only the last status.
func TestHubKeepsTheNewest(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{PaymentWindow: time.Hour}})
	hub, stop := r.RunHub(pipelinetest.Never)
	r.Subscribed(1)
	receipt := r.Admit("ann", 1)
	slow, quick := r.Watch(hub, receipt.OrderID), r.Watch(hub, receipt.OrderID)
	change := func(version int) {
		r.Notifier().Publish(r.Ctx(),
			[]notification.Change{{Partition: r.Sale.Partitions[0], SaleID: r.Sale.ID, OrderID: receipt.OrderID}})
		r.AwaitVersion(quick, version)
	}
	r.Persist(r.Events(r.Sale)...)
	change(1)
	for i, status := range []string{"cancelled", "refund_due"} {
		r.Exec(1, `update orders set status = $1, closed_at = now()`, status)
		change(i + 2)
	}
	if got := r.AwaitVersion(slow, 3); got.Status != pipeline.StatusRefundDue {
		t.Errorf("got %s", got.Status)
	}
	stop()
	if _, open := <-slow.Changes(); open {
		t.Error("the watch is open after the hub's end")
	}
	_, err := hub.Watch(r.Sale.ID, receipt.OrderID, 0)
	pipelinetest.WantKind(t, err, pipeline.KindUnavailable)
	slow.Close()
}

// TestHubLimits: of the process and of one order.
func TestHubLimits(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	hub, _ := r.RunHub(notification.HubConfig{Limit: 17})
	id := uuid.NewString()
	var all []*notification.Watch
	for range 16 {
		all = append(all, r.Watch(hub, id))
	}
	_, err := hub.Watch(r.Sale.ID, id, 0)
	pipelinetest.WantKind(t, err, pipeline.KindOverloaded)
	if !strings.Contains(err.Error(), "this order") {
		t.Errorf("got %v", err)
	}
	r.Watch(hub, uuid.NewString())
	_, err = hub.Watch(r.Sale.ID, uuid.NewString(), 0)
	pipelinetest.WantKind(t, err, pipeline.KindOverloaded)
	all[0].Close()
	r.Watch(hub, id)
}
