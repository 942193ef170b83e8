package pipeline_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/pipeline"
)

func TestWorkersShareTheLoad(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: 3000}})
	first := r.startWorker(r.store, pipeline.WorkerOptions{BatchSize: 50})
	second := r.startWorker(r.store, pipeline.WorkerOptions{BatchSize: 50})
	if first.Name() == second.Name() {
		t.Fatalf("both workers are called %s", first.Name())
	}
	r.admitMany("buyer", 3000)
	r.settled()
	if got := r.rows(r.sale.ID); got != 3000 {
		t.Errorf("got %d rows, want 3000", got)
	}
	r.balanced(r.sale, 3000)
	if locks := r.keysLike("lock:order:*"); locks != 0 {
		t.Errorf("%d order locks are left, want none", locks)
	}
}

// TestWorkersPersistManySales covers events of several sales and partitions in one batch.
func TestWorkersPersistManySales(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{NoSale: true})
	var sales []*pipeline.Sale
	for i := range 6 {
		sales = append(sales, r.createSale(pipeline.Sale{ID: fmt.Sprintf("drop-%d", i), PaymentWindow: time.Duration(i%2) * time.Minute}))
	}
	spread := r.createSale(pipeline.Sale{ID: "spread", Partitions: []pipeline.Partition{0, 1, 2, 3}})
	sales = append(sales, spread)
	for _, sale := range sales {
		r.sale = sale
		r.admitMany("buyer", 40)
	}
	r.startWorker(r.store, pipeline.WorkerOptions{BatchSize: 25})
	r.settled()
	for _, sale := range sales {
		r.balanced(sale, 40)
		want := pipeline.StatusConfirmed
		if sale.PaymentWindow > 0 {
			want = pipeline.StatusAwaitingPayment
		}
		order, err := r.store.LatestOrder(r.ctx(), sale.ID, "buyer-7")
		if err != nil || order.Status != want || order.PayBy.IsZero() != (sale.PaymentWindow == 0) {
			t.Errorf("sale %s: got %+v, %v; want status %s", sale.ID, order, err, want)
		}
	}
}

// TestDeadWorker: a worker that took events and died, without a word, without a heartbeat.
func TestDeadWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.admitMany("buyer", 90)
	r.deliverTo("dead", 60)
	r.startWorker(r.store, pipeline.WorkerOptions{BatchSize: 25})
	r.settled()
	r.balanced(r.sale, 90)
	if got := r.labelled("sluice_reclaims_total", "reason", "dead_worker"); got != 60 {
		t.Errorf("%v events were taken over, want 60", got)
	}
	testkit.Eventually(t, settleLimit, "the dead consumer is removed from the group", func() bool {
		consumers, err := r.rdb.XInfoConsumers(r.ctx(), r.keys.Orders(r.sale.Partitions[0]), pipeline.Group).Result()
		return err == nil && len(consumers) == 1
	})
}

// TestLivingWorkerKeepsItsEvents: as long as a worker's heart beats, its events are its own until they lie idle too long.
func TestLivingWorkerKeepsItsEvents(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	p := r.sale.Partitions[0]
	if err := r.rdb.Set(r.ctx(), r.keys.Worker(p, "slow"), "now", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	r.admitMany("buyer", 20)
	r.deliverTo("slow", 10)
	r.deliverTo("dead", 5)
	r.startWorker(r.store, pipeline.WorkerOptions{ClaimMinIdle: time.Hour})
	// Those of the dead one are taken over after half a heartbeat's life, in a look that passes the living one's by.
	testkit.Eventually(t, settleLimit, "the rest is persisted", func() bool { return r.rows(r.sale.ID) == 10 })
	if got := r.pendingOf("slow"); got != 10 {
		t.Errorf("%d events are pending for the living worker, want 10", got)
	}
	r.age("slow", 2*time.Hour)
	r.settled()
	r.balanced(r.sale, 20)
}

// age makes what is pending for a consumer look as if it had lain idle for a time.
func (r *rig) age(consumer string, idle time.Duration) {
	r.Helper()
	stream := r.keys.Orders(r.sale.Partitions[0])
	pending, err := r.rdb.XPendingExt(r.ctx(), &redis.XPendingExtArgs{
		Stream: stream, Group: pipeline.Group, Consumer: consumer, Start: "-", End: "+", Count: 1000,
	}).Result()
	if err != nil || len(pending) == 0 {
		r.Fatalf("pending of %s: got %d, %v, want some", consumer, len(pending), err)
	}
	claim := []any{"XCLAIM", stream, pipeline.Group, consumer, 0}
	for _, e := range pending {
		claim = append(claim, e.ID)
	}
	if err := r.rdb.Do(r.ctx(), append(claim, "IDLE", idle.Milliseconds(), "JUSTID")...).Err(); err != nil {
		r.Fatal(err)
	}
}

// TestStrandedDelivery: events that were delivered to this very worker in a reply that got lost.
func TestStrandedDelivery(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.admitMany("buyer", 30)
	r.deliverTo("me", 30)
	r.startWorker(r.store, pipeline.WorkerOptions{Name: "me", ClaimMinIdle: time.Hour})
	r.settled() // long before they have lain idle
	r.balanced(r.sale, 30)
}

// TestLockedElsewhere: orders whose lock another worker holds are left to it, and come back once it is gone.
func TestLockedElsewhere(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	receipts := r.admitMany("buyer", 10)
	p := r.sale.Partitions[0]
	lock := r.keys.OrderLock(p, receipts[3].OrderID)
	if err := r.rdb.Set(r.ctx(), lock, "somebody else", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	r.startWorker(r.store, pipeline.WorkerOptions{})
	testkit.Eventually(t, settleLimit, "nine orders are persisted", func() bool { return r.rows(r.sale.ID) == 9 })
	testkit.Eventually(t, settleLimit, "contention is counted", func() bool { return r.count("sluice_lock_contended_total") > 0 })
	if held, err := r.rdb.GetDel(r.ctx(), lock).Result(); err != nil || held != "somebody else" {
		t.Errorf("the other's lock: got %q, %v; it must stay", held, err)
	}
	r.settled()
	r.balanced(r.sale, 10)
}

// slowStore holds up the first batch, and reports that it did.
type slowStore struct {
	pipeline.OrderStore
	reached chan struct{}
	release chan struct{}
	once    sync.Once
}

func (s *slowStore) PersistOrders(ctx context.Context, g pipeline.Generation, events []pipeline.Event) ([]pipeline.PersistOutcome, error) {
	s.once.Do(func() {
		close(s.reached)
		<-s.release
	})
	return s.OrderStore.PersistOrders(ctx, g, events)
}

// TestStopFinishesTheBatch: a worker that is told to stop in the middle of a batch finishes it first.
func TestStopFinishesTheBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	store := &slowStore{OrderStore: r.store, reached: make(chan struct{}), release: make(chan struct{})}
	r.admitMany("buyer", 10)
	worker := r.startWorker(store, pipeline.WorkerOptions{Concurrency: 1})
	<-store.reached
	stopped := make(chan struct{})
	go func() {
		worker.stop()
		close(stopped)
	}()
	close(store.release)
	<-stopped
	if got := r.rows(r.sale.ID); got != 10 {
		t.Errorf("got %d rows, want 10", got)
	}
	if beats := r.keysLike("worker:*"); beats != 0 {
		t.Errorf("%d heartbeats are left, want none", beats)
	}
	consumers, err := r.rdb.XInfoConsumers(r.ctx(), r.keys.Orders(r.sale.Partitions[0]), pipeline.Group).Result()
	if err != nil || len(consumers) != 0 {
		t.Errorf("got consumers %v, %v; want none", consumers, err)
	}
}

// awayStore loses its database for some calls: before the transaction, and after it, when only the answer is lost.
type awayStore struct {
	pipeline.OrderStore
	calls atomic.Int64
}

func (s *awayStore) PersistOrders(ctx context.Context, g pipeline.Generation, events []pipeline.Event) ([]pipeline.PersistOutcome, error) {
	gone := pipeline.Errorf(pipeline.KindUnavailable, "connection lost")
	switch n := s.calls.Add(1); {
	case n <= 3:
		return nil, gone
	case n <= 6:
		if _, err := s.OrderStore.PersistOrders(ctx, g, events); err != nil {
			return nil, err
		}
		return nil, gone
	}
	return s.OrderStore.PersistOrders(ctx, g, events)
}

// TestLostAnswerOfPostgres (I6): a transaction that was committed and whose answer got lost is repeated and changes nothing.
func TestLostAnswerOfPostgres(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: 500}})
	r.admitMany("buyer", 500)
	r.startWorker(&awayStore{OrderStore: r.store}, pipeline.WorkerOptions{BatchSize: 100})
	r.settled()
	r.balanced(r.sale, 500)
}

// TestServersDie: Redis and Postgres are killed and come back while workers work; nobody has to restart a worker.
func TestServersDie(t *testing.T) {
	t.Parallel()
	redisServer, postgres := testkit.PrivateRedis(t), testkit.PrivatePostgres(t)
	r := newRig(t, rigOptions{RedisURL: redisServer.URL(), DatabaseURL: postgres.URL(), Sale: pipeline.Sale{Total: 600}})
	r.verifies()
	r.startWorker(r.store, pipeline.WorkerOptions{BatchSize: 20})
	r.admitMany("first", 200)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(postgres.Kill())
	r.admitMany("second", 200) // accepted without Postgres
	must(redisServer.Kill())
	must(redisServer.Restart(r.ctx()))
	must(postgres.Restart(r.ctx()))
	testkit.Eventually(t, settleLimit, "Redis is verified", func() bool { return r.trusted() })
	r.admitMany("third", 200)
	r.settled()
	r.balanced(r.sale, 600)
}

// TestFullRedisDrains: a Redis out of memory takes no locks and no heartbeats, and workers still empty the stream.
func TestFullRedisDrains(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 300}})
	r.admitMany("buyer", 300)
	r.createGroups()
	if err := r.rdb.ConfigSet(r.ctx(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	r.startWorker(r.store, pipeline.WorkerOptions{})
	r.settled()
	if got := r.rows(r.sale.ID); got != 300 {
		t.Errorf("got %d rows, want 300", got)
	}
}

// TestGroupLost: somebody destroys the consumer group; what was not delivered is delivered again from the beginning.
func TestGroupLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	first := r.startWorker(r.store, pipeline.WorkerOptions{})
	r.admitMany("first", 20)
	r.settled()
	if err := r.rdb.XGroupDestroy(r.ctx(), r.keys.Orders(r.sale.Partitions[0]), pipeline.Group).Err(); err != nil {
		t.Fatal(err)
	}
	r.admitMany("second", 20)
	r.settled()
	// And with nobody there to make it again before more is accepted.
	first.stop()
	r.admitMany("third", 20)
	if err := r.rdb.XGroupDestroy(r.ctx(), r.keys.Orders(r.sale.Partitions[0]), pipeline.Group).Err(); err != nil {
		t.Fatal(err)
	}
	r.startWorker(r.store, pipeline.WorkerOptions{})
	r.settled()
	r.balanced(r.sale, 60)
}

func TestWorkerOptions(t *testing.T) {
	t.Parallel()
	good := pipeline.WorkerOptions{Partitions: 16}.WithDefaults()
	if err := good.Validate(); err != nil {
		t.Fatalf("the defaults are refused: %v", err)
	}
	bad := good
	bad.Partitions, bad.BatchSize, bad.Concurrency = 0, pipeline.MaxBatchSize+1, -1
	bad.BatchDeadline, bad.LockTTL, bad.ClaimMinIdle = 10*time.Second, 10*time.Second, 5*time.Second
	err := bad.Validate()
	if pipeline.KindOf(err) != pipeline.KindInvalid {
		t.Fatalf("got %v, want an invalid error", err)
	}
	for _, name := range []string{"PARTITIONS", "WORKER_BATCH_SIZE", "WORKER_CONCURRENCY", "BATCH_DEADLINE (10s)", "LOCK_TTL (10s)"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s:\n%v", name, err)
		}
	}
}

// deliverTo has the group deliver n events to a consumer that does nothing with them.
func (r *rig) deliverTo(consumer string, n int) {
	r.Helper()
	stream := r.keys.Orders(r.sale.Partitions[0])
	if err := r.rdb.XGroupCreateMkStream(r.ctx(), stream, pipeline.Group, "0").Err(); err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		r.Fatal(err)
	}
	read, err := r.rdb.XReadGroup(r.ctx(), &redis.XReadGroupArgs{
		Group: pipeline.Group, Consumer: consumer, Streams: []string{stream, ">"}, Count: int64(n), Block: -1,
	}).Result()
	if err != nil || len(read) != 1 || len(read[0].Messages) != n {
		r.Fatalf("deliver %d events to %s: got %v, %v", n, consumer, read, err)
	}
}

// keysLike counts the keys of a kind, over all partitions.
func (r *rig) keysLike(pattern string) int {
	r.Helper()
	keys, err := r.rdb.Keys(r.ctx(), r.keys.Prefix+":*:"+pattern).Result()
	if err != nil {
		r.Fatal(err)
	}
	return len(keys)
}

// slowDatabase makes each call take its time, as a database in another building does.
type slowDatabase struct {
	pipeline.OrderStore
	delay time.Duration
	calls atomic.Int64
}

func (s *slowDatabase) PersistOrders(ctx context.Context, g pipeline.Generation, events []pipeline.Event) ([]pipeline.PersistOutcome, error) {
	s.calls.Add(1)
	select {
	case <-time.After(s.delay):
		return s.OrderStore.PersistOrders(ctx, g, events)
	case <-ctx.Done():
		return nil, pipeline.Wrap(pipeline.KindUnavailable, ctx.Err(), "too slow")
	}
}

// TestManyRefusedBeforeGood (I8): a hundred events that Postgres refuses take longer to find than a batch may; every pass
// still gets further than the one before, and the good ones behind them are persisted.
func TestManyRefusedBeforeGood(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{NoSale: true})
	const refused = 120
	oversold := r.createSale(pipeline.Sale{ID: "oversold", Total: 1})
	good := r.createSale(pipeline.Sale{ID: "good", Partitions: oversold.Partitions})
	if err := r.rdb.HIncrBy(r.ctx(), r.keys.Sale(oversold.Partitions[0], oversold.ID), "stock", refused).Err(); err != nil {
		t.Fatal(err)
	}
	r.sale = oversold
	r.admitMany("many", refused+1)
	r.sale = good
	r.admitMany("few", 20)
	r.startWorker(&slowDatabase{OrderStore: r.store, delay: 10 * time.Millisecond}, pipeline.WorkerOptions{
		Concurrency: 1, BatchDeadline: 500 * time.Millisecond, LockTTL: time.Second, ClaimMinIdle: 20 * time.Second,
	})
	testkit.Eventually(t, settleLimit, "the good orders are persisted", func() bool { return r.rows(good.ID) == 20 })
	r.settled()
	if got := r.letters()["refused"]; got != refused {
		t.Errorf("%d letters, want %d", got, refused)
	}
}

// TestDeletedEventsAreReported (I9): somebody deletes events that a dead worker held; that is counted, never passed over.
func TestDeletedEventsAreReported(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.admitMany("buyer", 10)
	r.deliverTo("dead", 10)
	for _, e := range r.entries(r.sale.Partitions[0])[3:5] {
		if err := r.rdb.XDel(r.ctx(), r.keys.Orders(r.sale.Partitions[0]), e.ID).Err(); err != nil {
			t.Fatal(err)
		}
	}
	r.startWorker(r.store, pipeline.WorkerOptions{})
	testkit.Eventually(t, settleLimit, "the rest is persisted", func() bool { return r.rows(r.sale.ID) == 8 })
	testkit.Eventually(t, settleLimit, "both are reported", func() bool { return r.count("sluice_events_lost_total") == 2 })
}

// TestStopIsBounded: a worker in whose hands a whole first read lies, and whose Postgres hangs, stops after one pass.
func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{NoSale: true, Partitions: 8})
	for i := range 8 {
		r.sale = r.createSale(pipeline.Sale{ID: fmt.Sprintf("drop-%d", i), Partitions: []pipeline.Partition{pipeline.Partition(i)}})
		r.admitMany("buyer", 50)
	}
	store := &slowDatabase{OrderStore: r.store, delay: time.Hour}
	worker := r.startWorker(store, pipeline.WorkerOptions{
		Concurrency: 1, BatchSize: 10, BatchDeadline: 2 * time.Second, LockTTL: 10 * time.Second,
	})
	testkit.Eventually(t, settleLimit, "a batch is in hand", func() bool { return store.calls.Load() > 0 })
	before := store.calls.Load()
	worker.stop()
	if began := store.calls.Load() - before; began > 1 { // one may have been about to begin
		t.Errorf("%d more batches were begun after the worker was told to stop", began)
	}
}
