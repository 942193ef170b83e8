package worker_test

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
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/worker"
)

func TestWorkersShareTheLoad(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 3000}})
	first := r.StartWorker(r.Store, worker.Options{BatchSize: 50})
	second := r.StartWorker(r.Store, worker.Options{BatchSize: 50})
	if first.Name() == second.Name() {
		t.Fatalf("both workers are called %s", first.Name())
	}
	r.AdmitMany("buyer", 3000)
	r.Settled()
	if got := r.Rows(r.Sale.ID); got != 3000 {
		t.Errorf("got %d rows, want 3000", got)
	}
	r.Balanced(r.Sale, 3000)
	if locks := keysLike(r, "lock:order:*"); locks != 0 {
		t.Errorf("%d order locks are left, want none", locks)
	}
}

// TestWorkersPersistManySales covers events of several sales and partitions in one batch.
func TestWorkersPersistManySales(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{NoSale: true})
	var sales []*pipeline.Sale
	for i := range 6 {
		sale := pipeline.Sale{ID: fmt.Sprintf("drop-%d", i), PaymentWindow: time.Duration(i%2) * time.Minute}
		sales = append(sales, r.CreateSale(sale))
	}
	spread := r.CreateSale(pipeline.Sale{ID: "spread", Partitions: []pipeline.Partition{0, 1, 2, 3}})
	sales = append(sales, spread)
	for _, sale := range sales {
		r.Sale = sale
		r.AdmitMany("buyer", 40)
	}
	r.StartWorker(r.Store, worker.Options{BatchSize: 25})
	r.Settled()
	for _, sale := range sales {
		r.Balanced(sale, 40)
		want := pipeline.StatusConfirmed
		if sale.PaymentWindow > 0 {
			want = pipeline.StatusAwaitingPayment
		}
		order, err := r.Store.LatestOrder(r.Ctx(), sale.ID, "buyer-7")
		if err != nil || order.Status != want || order.PayBy.IsZero() != (sale.PaymentWindow == 0) {
			t.Errorf("sale %s: got %+v, %v; want status %s", sale.ID, order, err, want)
		}
	}
}

// TestDeadWorker: a worker fetched events and died, so that it has no heartbeat.
func TestDeadWorker(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	r.AdmitMany("buyer", 90)
	deliverTo(r, "dead", 60)
	r.StartWorker(r.Store, worker.Options{BatchSize: 25})
	r.Settled()
	r.Balanced(r.Sale, 90)
	if got := r.Labelled("sluice_reclaims_total", "reason", "dead_worker"); got != 60 {
		t.Errorf("%v events were taken over, want 60", got)
	}
	testkit.Eventually(t, pipelinetest.SettleLimit, "the dead consumer is removed from the group", func() bool {
		consumers, err := r.Redis.XInfoConsumers(r.Ctx(), r.Keys.Orders(r.Sale.Partitions[0]), pipeline.Group).Result()
		return err == nil && len(consumers) == 1
	})
}

// TestLivingWorkerKeepsItsEvents: as long as a worker has a heartbeat, its events are its own until they are idle for
// too long.
func TestLivingWorkerKeepsItsEvents(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	p := r.Sale.Partitions[0]
	if err := r.Redis.Set(r.Ctx(), r.Keys.Worker(p, "slow"), "now", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	r.AdmitMany("buyer", 20)
	deliverTo(r, "slow", 10)
	deliverTo(r, "dead", 5)
	r.StartWorker(r.Store, worker.Options{ClaimMinIdle: time.Hour})
	// Those of the dead one are taken over after half a heartbeat's TTL, by a look that must leave the living one's alone.
	testkit.Eventually(t, pipelinetest.SettleLimit, "the rest is persisted",
		func() bool { return r.Rows(r.Sale.ID) == 10 })
	if got := r.PendingOf("slow"); got != 10 {
		t.Errorf("%d events are pending for the living worker, want 10", got)
	}
	age(r, "slow", 2*time.Hour)
	r.Settled()
	r.Balanced(r.Sale, 20)
}

// age sets the idle time of what is pending for a consumer.
func age(r *pipelinetest.Rig, consumer string, idle time.Duration) {
	r.Helper()
	stream := r.Keys.Orders(r.Sale.Partitions[0])
	pending, err := r.Redis.XPendingExt(r.Ctx(), &redis.XPendingExtArgs{
		Stream: stream, Group: pipeline.Group, Consumer: consumer, Start: "-", End: "+", Count: 1000,
	}).Result()
	if err != nil || len(pending) == 0 {
		r.Fatalf("pending of %s: got %d, %v, want some", consumer, len(pending), err)
	}
	claim := []any{"XCLAIM", stream, pipeline.Group, consumer, 0}
	for _, e := range pending {
		claim = append(claim, e.ID)
	}
	if err := r.Redis.Do(r.Ctx(), append(claim, "IDLE", idle.Milliseconds(), "JUSTID")...).Err(); err != nil {
		r.Fatal(err)
	}
}

// TestStrandedDelivery: events that were delivered to this very worker in a reply that got lost.
func TestStrandedDelivery(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	r.AdmitMany("buyer", 30)
	deliverTo(r, "me", 30)
	r.StartWorker(r.Store, worker.Options{Name: "me", ClaimMinIdle: time.Hour})
	r.Settled() // long before they are idle for ClaimMinIdle
	r.Balanced(r.Sale, 30)
}

// TestLockedElsewhere: orders whose lock another worker holds are left to it, and come back once it is gone.
func TestLockedElsewhere(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	receipts := r.AdmitMany("buyer", 10)
	p := r.Sale.Partitions[0]
	lock := r.Keys.OrderLock(p, receipts[3].OrderID)
	if err := r.Redis.Set(r.Ctx(), lock, "somebody else", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	r.StartWorker(r.Store, worker.Options{})
	testkit.Eventually(t, pipelinetest.SettleLimit, "nine orders are persisted",
		func() bool { return r.Rows(r.Sale.ID) == 9 })
	testkit.Eventually(t, pipelinetest.SettleLimit, "contention is counted", func() bool {
		return r.Count("sluice_lock_contended_total") > 0
	})
	if token, err := r.Redis.GetDel(r.Ctx(), lock).Result(); err != nil || token != "somebody else" {
		t.Errorf("the other's lock: got %q, %v; it must remain", token, err)
	}
	r.Settled()
	r.Balanced(r.Sale, 10)
}

// slowStore blocks the first batch, and reports that it did.
type slowStore struct {
	worker.Store
	reached chan struct{}
	release chan struct{}
	once    sync.Once
}

func (s *slowStore) PersistMarked(
	ctx context.Context, g pipeline.Generation, events []pipeline.Event,
) ([]pipeline.PersistOutcome, map[pipeline.SalePartition]int64, error) {
	s.once.Do(func() {
		close(s.reached)
		<-s.release
	})
	return s.Store.PersistMarked(ctx, g, events)
}

// TestStopFinishesTheBatch: a worker that is stopped in the middle of a batch finishes it first.
func TestStopFinishesTheBatch(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	store := &slowStore{Store: r.Store, reached: make(chan struct{}), release: make(chan struct{})}
	r.AdmitMany("buyer", 10)
	worker := r.StartWorker(store, worker.Options{Concurrency: 1})
	<-store.reached
	stopped := make(chan struct{})
	go func() {
		worker.Stop()
		close(stopped)
	}()
	close(store.release)
	<-stopped
	if got := r.Rows(r.Sale.ID); got != 10 {
		t.Errorf("got %d rows, want 10", got)
	}
	if beats := keysLike(r, "worker:*"); beats != 0 {
		t.Errorf("%d heartbeats are left, want none", beats)
	}
	consumers, err := r.Redis.XInfoConsumers(r.Ctx(), r.Keys.Orders(r.Sale.Partitions[0]), pipeline.Group).Result()
	if err != nil || len(consumers) != 0 {
		t.Errorf("got consumers %v, %v; want none", consumers, err)
	}
}

// awayStore loses the database for some calls: before the transaction, and after it, when only the answer is lost.
type awayStore struct {
	worker.Store
	calls atomic.Int64
}

func (s *awayStore) PersistMarked(
	ctx context.Context, g pipeline.Generation, events []pipeline.Event,
) ([]pipeline.PersistOutcome, map[pipeline.SalePartition]int64, error) {
	gone := pipeline.Errorf(pipeline.KindUnavailable, "connection lost")
	switch n := s.calls.Add(1); {
	case n <= 3:
		return nil, nil, gone
	case n <= 6:
		if _, _, err := s.Store.PersistMarked(ctx, g, events); err != nil {
			return nil, nil, err
		}
		return nil, nil, gone
	}
	return s.Store.PersistMarked(ctx, g, events)
}

// TestLostAnswerOfPostgres (I6): a transaction that was committed and whose answer got lost is repeated and changes
// nothing.
func TestLostAnswerOfPostgres(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 500}})
	r.AdmitMany("buyer", 500)
	r.StartWorker(&awayStore{Store: r.Store}, worker.Options{BatchSize: 100})
	r.Settled()
	r.Balanced(r.Sale, 500)
}

// TestServersDie: Redis and Postgres are killed and come back while workers work; no worker has to be restarted.
func TestServersDie(t *testing.T) {
	t.Parallel()
	redisServer, postgres := testkit.PrivateRedis(t), testkit.PrivatePostgres(t)
	r := pipelinetest.New(t, pipelinetest.Options{
		RedisURL: redisServer.URL(), DatabaseURL: postgres.URL(), Sale: pipeline.Sale{Total: 600},
	})
	r.Verifies()
	r.StartWorker(r.Store, worker.Options{BatchSize: 20})
	r.AdmitMany("first", 200)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(postgres.Kill())
	r.AdmitMany("second", 200) // accepted without Postgres
	must(redisServer.Kill())
	must(redisServer.Restart(r.Ctx()))
	must(postgres.Restart(r.Ctx()))
	testkit.Eventually(t, pipelinetest.SettleLimit, "Redis is verified", func() bool { return r.Trusted() })
	r.AdmitMany("third", 200)
	r.Settled()
	r.Balanced(r.Sale, 600)
}

// TestFullRedisDrains: a Redis out of memory takes no locks and no heartbeats, and workers still empty the stream.
func TestFullRedisDrains(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 300}})
	r.AdmitMany("buyer", 300)
	r.CreateGroups()
	if err := r.Redis.ConfigSet(r.Ctx(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	r.StartWorker(r.Store, worker.Options{})
	r.Settled()
	if got := r.Rows(r.Sale.ID); got != 300 {
		t.Errorf("got %d rows, want 300", got)
	}
}

// TestGroupLost: the consumer group is destroyed; everything in the stream is delivered again from the beginning.
func TestGroupLost(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	first := r.StartWorker(r.Store, worker.Options{})
	r.AdmitMany("first", 20)
	r.Settled()
	if err := r.Redis.XGroupDestroy(r.Ctx(), r.Keys.Orders(r.Sale.Partitions[0]), pipeline.Group).Err(); err != nil {
		t.Fatal(err)
	}
	r.AdmitMany("second", 20)
	r.Settled()
	// And with no worker to create it again before more is accepted.
	first.Stop()
	r.AdmitMany("third", 20)
	if err := r.Redis.XGroupDestroy(r.Ctx(), r.Keys.Orders(r.Sale.Partitions[0]), pipeline.Group).Err(); err != nil {
		t.Fatal(err)
	}
	r.StartWorker(r.Store, worker.Options{})
	r.Settled()
	r.Balanced(r.Sale, 60)
}

func TestWorkerOptions(t *testing.T) {
	t.Parallel()
	good := worker.Options{Partitions: 16}.WithDefaults()
	if err := good.Validate(); err != nil {
		t.Fatalf("the defaults are refused: %v", err)
	}
	bad := good
	bad.Partitions, bad.BatchSize, bad.Concurrency = 0, worker.MaxBatchSize+1, -1
	bad.BatchDeadline, bad.LockTTL, bad.ClaimMinIdle = 10*time.Second, 10*time.Second, 5*time.Second
	err := bad.Validate()
	if pipeline.KindOf(err) != pipeline.KindInvalid {
		t.Fatalf("got %v, want an invalid error", err)
	}
	for _, name := range []string{
		"PARTITIONS", "WORKER_BATCH_SIZE", "WORKER_CONCURRENCY", "BATCH_DEADLINE (10s)",
		"LOCK_TTL (10s)",
	} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s:\n%v", name, err)
		}
	}
}

// deliverTo has the group deliver n events to a consumer that does nothing with them.
func deliverTo(r *pipelinetest.Rig, consumer string, n int) {
	r.Helper()
	stream := r.Keys.Orders(r.Sale.Partitions[0])
	err := r.Redis.XGroupCreateMkStream(r.Ctx(), stream, pipeline.Group, "0").Err()
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		r.Fatal(err)
	}
	read, err := r.Redis.XReadGroup(r.Ctx(), &redis.XReadGroupArgs{
		Group: pipeline.Group, Consumer: consumer, Streams: []string{stream, ">"}, Count: int64(n), Block: -1,
	}).Result()
	if err != nil || len(read) != 1 || len(read[0].Messages) != n {
		r.Fatalf("deliver %d events to %s: got %v, %v", n, consumer, read, err)
	}
}

// keysLike counts the keys of a kind, over all partitions.
func keysLike(r *pipelinetest.Rig, pattern string) int {
	r.Helper()
	keys, err := r.Redis.Keys(r.Ctx(), r.Keys.Prefix+":*:"+pattern).Result()
	if err != nil {
		r.Fatal(err)
	}
	return len(keys)
}

// slowDatabase delays each call, as a distant database does.
type slowDatabase struct {
	worker.Store
	delay time.Duration
	calls atomic.Int64
}

func (s *slowDatabase) PersistMarked(
	ctx context.Context, g pipeline.Generation, events []pipeline.Event,
) ([]pipeline.PersistOutcome, map[pipeline.SalePartition]int64, error) {
	s.calls.Add(1)
	select {
	case <-time.After(s.delay):
		return s.Store.PersistMarked(ctx, g, events)
	case <-ctx.Done():
		return nil, nil, pipeline.Wrap(pipeline.KindUnavailable, ctx.Err(), "too slow")
	}
}

// TestManyRefusedBeforeGood (I8): a hundred events that Postgres refuses take longer to find than a batch may; every
// attempt still gets further than the one before, and the good ones behind them are persisted.
func TestManyRefusedBeforeGood(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{NoSale: true})
	const refused = 120
	oversold := r.CreateSale(pipeline.Sale{ID: "oversold", Total: 1})
	good := r.CreateSale(pipeline.Sale{ID: "good", Partitions: oversold.Partitions})
	stock := r.Keys.Sale(oversold.Partitions[0], oversold.ID)
	if err := r.Redis.HIncrBy(r.Ctx(), stock, "stock", refused).Err(); err != nil {
		t.Fatal(err)
	}
	r.Sale = oversold
	r.AdmitMany("many", refused+1)
	r.Sale = good
	r.AdmitMany("few", 20)
	r.StartWorker(&slowDatabase{Store: r.Store, delay: 10 * time.Millisecond}, worker.Options{
		Concurrency: 1, BatchDeadline: 500 * time.Millisecond, LockTTL: time.Second, ClaimMinIdle: 20 * time.Second,
	})
	testkit.Eventually(t, pipelinetest.SettleLimit, "the good orders are persisted",
		func() bool { return r.Rows(good.ID) == 20 })
	r.Settled()
	if got := r.Letters()["refused"]; got != refused {
		t.Errorf("%d letters, want %d", got, refused)
	}
}

// TestDeletedEventsAreReported (I9): events that were pending for a dead worker are deleted; that is counted, never
// ignored.
func TestDeletedEventsAreReported(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	r.AdmitMany("buyer", 10)
	deliverTo(r, "dead", 10)
	for _, e := range r.Entries(r.Sale.Partitions[0])[3:5] {
		if err := r.Redis.XDel(r.Ctx(), r.Keys.Orders(r.Sale.Partitions[0]), e.ID).Err(); err != nil {
			t.Fatal(err)
		}
	}
	r.StartWorker(r.Store, worker.Options{})
	testkit.Eventually(t, pipelinetest.SettleLimit, "the rest is persisted", func() bool { return r.Rows(r.Sale.ID) == 8 })
	testkit.Eventually(t, pipelinetest.SettleLimit, "both are reported", func() bool {
		return r.Count("sluice_events_lost_total") == 2
	})
}

// TestStopIsBounded: a worker that has fetched a whole first read, and whose Postgres hangs, stops after one attempt.
func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{NoSale: true, Partitions: 8})
	for i := range 8 {
		sale := pipeline.Sale{ID: fmt.Sprintf("drop-%d", i), Partitions: []pipeline.Partition{pipeline.Partition(i)}}
		r.Sale = r.CreateSale(sale)
		r.AdmitMany("buyer", 50)
	}
	store := &slowDatabase{Store: r.Store, delay: time.Hour}
	worker := r.StartWorker(store, worker.Options{
		Concurrency: 1, BatchSize: 10, BatchDeadline: 2 * time.Second, LockTTL: 10 * time.Second,
	})
	testkit.Eventually(t, pipelinetest.SettleLimit, "a batch is in flight", func() bool { return store.calls.Load() > 0 })
	before := store.calls.Load()
	worker.Stop()
	if began := store.calls.Load() - before; began > 1 { // one may have been about to begin
		t.Errorf("%d more batches were begun after the worker was stopped", began)
	}
}
