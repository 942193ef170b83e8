package pipeline_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
)

// A server that restarted admits nobody until it was compared with Postgres. When nothing was lost that changes nothing
// else, and nothing is rebuilt.
func TestARestartIsVerifiedFirst(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL()})
	r.admitMany("before", 30)
	r.persist(r.events(r.sale)[:20]...)
	before := r.dump(r.sale)
	for range 2 { // in good order, and killed: it writes through either way
		if err := server.Restart(r.ctx()); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, callLimit, "Redis answers", func() bool { return r.rdb.Ping(r.ctx()).Err() == nil })
		_, err := r.try(pipeline.OrderRequest{UserID: "early", Quantity: 1})
		wantKind(t, err, pipeline.KindNotLoaded)
		answered := time.Now()
		r.ensure()
		t.Logf("verified %s after the first answer", time.Since(answered).Round(time.Millisecond))
		if after := r.dump(r.sale); after != before {
			t.Errorf("verifying changed\n%s to\n%s", before, after)
		}
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	if err := server.Restart(r.ctx()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, callLimit, "Redis answers", func() bool { return r.rdb.Ping(r.ctx()).Err() == nil })
	r.ensure()
	r.admit("late", 1)
	if got := r.rebuilds(); len(got) != 0 {
		t.Errorf("rebuilt %+v, and nothing was lost", got)
	}
}

// Redis loses everything in the middle of a sale, again and again, while buyers go on and a worker has orders in hand. Every
// accept that was told ends as one row, not one unit is sold above the total, and the sale opens by itself.
func TestFlushInTheMiddleOfASale(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	const stock = 3000
	r := newRig(t, rigOptions{RedisURL: server.URL(), Sale: pipeline.Sale{Total: stock, MaxQuantity: 1}})
	r.verifies()
	r.startWorker(r.store, pipeline.WorkerOptions{BatchSize: 50}, r.releaser().Job())

	told := &sync.Map{} // order id → user
	var accepts sync.WaitGroup
	var mu sync.Mutex
	count, soldOut := 0, false
	counted := func() int {
		mu.Lock()
		defer mu.Unlock()
		return count
	}
	var last atomic.Bool // until Redis has lost everything for the last time, enough is left to go on with
	for b := range 8 {
		accepts.Go(func() {
			for n := 0; ; n++ {
				for counted() > stock*2/3 && !last.Load() && !t.Failed() {
					time.Sleep(time.Millisecond)
				}
				user := fmt.Sprintf("buyer-%d-%d", b, n)
				got, err := r.admission.Admit(context.Background(), r.sale, pipeline.OrderRequest{UserID: user, Quantity: 1})
				mu.Lock()
				switch {
				case err == nil && got.Result == pipeline.AdmissionAccepted:
					told.Store(got.Receipt.OrderID, user)
					count++
				case err == nil && got.Result == pipeline.AdmissionSoldOut:
					soldOut = true
				case err == nil || pipeline.KindOf(err) != pipeline.KindNotLoaded && pipeline.KindOf(err) != pipeline.KindUnavailable:
					t.Errorf("%s: got %s, %v", user, got.Result, err)
				}
				over := soldOut || t.Failed()
				mu.Unlock()
				if over {
					return
				}
				if err != nil {
					time.Sleep(10 * time.Millisecond) // as Retry-After asks, but sooner
				}
			}
		})
	}
	for i, at := range []int{300, 1200} {
		testkit.Eventually(t, settleLimit, "buyers are served", func() bool { return counted() >= at || t.Failed() })
		was := counted()
		r.flush()
		flushed := time.Now()
		last.Store(i == 1)
		testkit.Eventually(t, settleLimit, "the sale is open again", func() bool { return counted() > was+100 || t.Failed() })
		t.Logf("flushed after %d accepts; open again, and 100 accepts later, after %s", was, time.Since(flushed).Round(time.Millisecond))
	}
	accepts.Wait()
	r.settled()
	var releases int
	testkit.Eventually(t, settleLimit, "everything is given back", func() bool {
		return r.raw.QueryRow(r.ctx(), `select count(*) from releases where applied_at is null`).Scan(&releases) == nil && releases == 0
	})
	r.everyAcceptHasItsRow(told)
	report, err := r.auditor.Audit(r.ctx(), r.sale)
	if err != nil || !report.Exact || !report.Clean() || report.Live > stock {
		t.Errorf("audit: got %+v, %v", report, err)
	}
	if got := r.rebuilds(); len(got) < 2 {
		t.Errorf("got the rebuilds %+v, want one for each flush", got)
	} else {
		t.Logf("rebuilds: %+v", got)
	}
}

// everyAcceptHasItsRow checks each order that was told: it has one row of that buyer, live, or rejected with a letter.
func (r *rig) everyAcceptHasItsRow(told *sync.Map) {
	r.Helper()
	statuses := map[string]int{}
	told.Range(func(id, user any) bool {
		var status, owner string
		var letters int
		err := r.raw.QueryRow(r.ctx(), `
			select o.status, o.user_id, (select count(*) from dead_letters d where d.order_id = o.id::text)
			from orders o where o.sale_id = $1 and o.id = $2::text::uuid`, r.sale.ID, id).Scan(&status, &owner, &letters)
		switch {
		case err != nil:
			r.Errorf("order %s of %s: %v", id, user, err)
		case owner != user:
			r.Errorf("order %s: got buyer %s, want %s", id, owner, user)
		case status == "rejected" && letters != 1:
			r.Errorf("order %s is rejected, with %d letters", id, letters)
		}
		statuses[status]++
		return !r.Failed()
	})
	r.Logf("orders that were told: %v", statuses)
}

// What nobody but the api knows of is shown to Redis again before anybody else may order.
func TestAcceptsThatOnlyTheAPIKnows(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 50, MaxQuantity: 1}})
	receipts := r.admitMany("buyer", 50) // sold out, and nothing in Postgres
	r.flush()
	r.verifies()
	testkit.Eventually(t, settleLimit, "Redis is verified", r.trusted)
	if got, err := r.try(pipeline.OrderRequest{UserID: "late", Quantity: 1}); err != nil || got.Result != pipeline.AdmissionSoldOut {
		t.Errorf("a new buyer: got %s, %v, want sold out", got.Result, err)
	}
	r.workAll()
	r.balanced(r.sale, 50)
	told := &sync.Map{}
	for i, receipt := range receipts {
		told.Store(receipt.OrderID, fmt.Sprintf("buyer-%d", i))
	}
	r.everyAcceptHasItsRow(told)
	if got := r.letters(); len(got) != 0 {
		t.Errorf("got letters %v", got)
	}
}

// An api that could not look while Redis was flushed and rebuilt by somebody else (it was stopped, or cut off) finds it trusted
// under the run_id that it knows. What only that api remembers is shown to Redis all the same.
func TestAnAPIThatMissedALossShowsWhatItKnows(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 50, MaxQuantity: 1}})
	config := r.verifierConfig()
	config.Resubmit = r.resubmitRecent()
	verifier := pipeline.NewVerifier(config)
	if err := verifier.Ensure(r.ctx()); err != nil {
		t.Fatal(err)
	}
	receipts := r.admitMany("buyer", 20) // nothing of it is in Postgres
	r.flush()
	r.ensure() // somebody else's verifier, from the loss to the opening
	if err := verifier.Ensure(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.workAll()
	r.balanced(r.sale, 20)
	told := &sync.Map{}
	for i, receipt := range receipts {
		told.Store(receipt.OrderID, fmt.Sprintf("buyer-%d", i))
	}
	r.everyAcceptHasItsRow(told)
}

// Keys of a sale that hold something else by some accident are as good as lost: they are rebuilt, and keep nobody else closed.
func TestKeysOfAnotherTypeAreRebuilt(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL()})
	r.admitMany("buyer", 5)
	r.workAll()
	p := r.sale.Partitions[0]
	for _, key := range []string{r.keys.Sale(p, r.sale.ID), r.keys.Buyers(p, r.sale.ID)} {
		if err := r.rdb.Set(r.ctx(), key, "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.rdb.Del(r.ctx(), r.keys.Trusted(p)).Err(); err != nil {
		t.Fatal(err)
	}
	r.ensure()
	r.balanced(r.sale, 5)
	if got := r.rebuilds(); len(got) != 1 || got[0].Reason != "absent" {
		t.Errorf("got rebuilds %+v, want one of what is absent", got)
	}
}

// forgetful is a Postgres that goes away just when a rebuild is to be recorded.
type forgetful struct {
	pipeline.VerifyStore
	times int
}

func (f *forgetful) RecordRebuild(ctx context.Context, g pipeline.Generation, actor string, report pipeline.RebuildReport) error {
	if f.times--; f.times >= 0 {
		return pipeline.Errorf(pipeline.KindUnavailable, "Postgres is away")
	}
	return f.VerifyStore.RecordRebuild(ctx, g, actor, report)
}

// No rebuild is silent (I9): one that can't be recorded is not done, and is done again when it can.
func TestARebuildIsOnRecord(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL()})
	r.admitMany("persisted", 5)
	r.workAll()
	r.flush()
	store := &forgetful{VerifyStore: r.store, times: 2}
	if err := pipeline.EnsureVerified(r.ctx(), r.rdb, r.keys, store, r.opts.Partitions, r.log); err != nil {
		t.Fatal(err)
	}
	if got := r.rebuilds(); len(got) != 1 || got[0].Live != 5 {
		t.Errorf("got rebuilds %+v on record, want the one that was done", got)
	}
	r.balanced(r.sale, 5)
}

// overtaken is a Postgres in which another verification begins just when a rebuild is to be recorded: the connection that
// elected this one was cut.
type overtaken struct {
	pipeline.VerifyStore
	times int
}

func (o *overtaken) RecordRebuild(ctx context.Context, g pipeline.Generation, actor string, report pipeline.RebuildReport) error {
	if o.times--; o.times >= 0 {
		if _, err := o.NextGeneration(ctx); err != nil {
			return err
		}
	}
	return o.VerifyStore.RecordRebuild(ctx, g, actor, report)
}

// Who was overtaken while it compared writes nothing into Postgres: the accepts that are lost are counted once.
func TestAnOvertakenRebuildIsNotOnRecord(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL()})
	r.admitMany("persisted", 5)
	r.workAll()
	if _, err := r.raw.Exec(r.ctx(), `update watermarks set seq = seq + 3`); err != nil { // three more were accepted, and are nowhere
		t.Fatal(err)
	}
	r.flush()
	store := &overtaken{VerifyStore: r.store, times: 2}
	if err := pipeline.EnsureVerified(r.ctx(), r.rdb, r.keys, store, r.opts.Partitions, r.log); err != nil {
		t.Fatal(err)
	}
	if got := r.rebuilds(); len(got) != 1 || got[0].Missing != 3 {
		t.Errorf("got rebuilds %+v on record, want one that misses three", got)
	}
	if store.times != -1 {
		t.Errorf("got %d, want both overtaken rebuilds refused, and a third one recorded", store.times)
	}
	var lost int
	if err := r.raw.QueryRow(r.ctx(), `select sum(lost) from watermarks`).Scan(&lost); err != nil || lost != 3 {
		t.Errorf("got %d lost, %v, want 3", lost, err)
	}
}

// An accept that Redis lost, and whose units another buyer has since, is rejected with a letter: the buyer is told.
func TestALostAcceptThatCannotStand(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 1, MaxQuantity: 1}})
	lost := r.admit("ann", 1)
	r.flush()
	r.ensure() // somebody else's verifier: ann's api is slow
	other := r.newAdmission(r.rdb, pipeline.AdmissionOptions{})
	if got, err := other.Admit(r.ctx(), r.sale, pipeline.OrderRequest{UserID: "bob", Quantity: 1}); err != nil || got.Result != pipeline.AdmissionAccepted {
		t.Fatalf("bob: got %s, %v", got.Result, err)
	}
	resubmit := r.resubmitRecent()
	for range 2 {
		if err := resubmit(r.ctx(), r.sale.Partitions[0]); err != nil {
			t.Fatal(err)
		}
	}
	r.workAll()
	order, err := r.store.Order(r.ctx(), r.sale.ID, lost.OrderID)
	if err != nil || order.Status != pipeline.StatusRejected || order.Reason != pipeline.LetterRedisLost {
		t.Errorf("got %+v, %v, want it rejected as lost by Redis", order, err)
	}
	if got := r.letters()[pipeline.LetterRedisLost]; got != 1 {
		t.Errorf("got %d letters, want one", got)
	}
	r.balanced(r.sale, 1)
}

// A worker holds events while Redis loses everything: they are not persisted on the old terms, and not lost either.
func TestEventsInHandOutliveALoss(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL(), Partitions: 1, Sale: pipeline.Sale{Total: 40, MaxQuantity: 1}})
	r.admitMany("buyer", 40)
	held := &stoppedStore{OrderStore: r.store, reached: make(chan struct{}), free: make(chan struct{})}
	r.startWorker(held, pipeline.WorkerOptions{BatchSize: 40, Concurrency: 1})
	<-held.reached
	r.flush()
	r.ensure()
	if got := r.stock(r.sale); got != 40 {
		t.Fatalf("the rebuilt stock is %d, want 40: nothing was in Postgres", got)
	}
	close(held.free)
	testkit.Eventually(t, settleLimit, "every order is persisted", func() bool { return r.rows(r.sale.ID) == 40 })
	r.settled()
	r.balanced(r.sale, 40)
	if got := r.count("sluice_accepts_readmitted_total"); got != 40 {
		t.Errorf("%v accepts were shown again, want 40", got)
	}
}

// stoppedStore stops the first batch before it reaches Postgres.
type stoppedStore struct {
	pipeline.OrderStore
	once          sync.Once
	reached, free chan struct{}
}

func (s *stoppedStore) PersistOrders(ctx context.Context, g pipeline.Generation, events []pipeline.Event) ([]pipeline.PersistOutcome, error) {
	s.once.Do(func() {
		close(s.reached)
		<-s.free
	})
	return s.OrderStore.PersistOrders(context.WithoutCancel(ctx), g, events)
}

// A state that is older than what Postgres has seen is replaced, whichever of its counters tells.
func TestAnOlderStateIsRebuilt(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"accepts", "releases", "absent"} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			partitions := []pipeline.Partition{1, 3}
			if reason == "releases" {
				partitions = partitions[:1] // the one that knows of releases
			}
			r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: 20, MaxQuantity: 2, Partitions: partitions}})
			r.admitMany("early", 6)
			r.persist(r.events(r.sale)...)
			older := r.snapshot()
			r.admitMany("later", 4)
			r.persist(r.events(r.sale)...)
			if reason == "releases" {
				older = r.snapshot()
				r.expire("early-0", "early-1", "later-0")
				if err := r.releaser().Apply(r.ctx()); err != nil {
					t.Fatal(err)
				}
			}
			waiting := r.admitMany("waiting", 3) // in the stream only
			want := r.dump(r.sale)
			live := int64(10)
			if reason == "releases" {
				live = 7
			}
			if reason == "absent" {
				r.lose(r.sale)
			} else {
				r.restore(older)
			}
			r.ensure() // it still looks verified
			verifier := pipeline.NewVerifier(r.verifierConfig())
			if err := verifier.Job().Run(r.ctx()); err != nil {
				t.Fatal(err)
			}
			if got := r.dump(r.sale); got != want {
				t.Errorf("rebuilt\n%s, want\n%s", got, want)
			}
			for _, report := range r.rebuilds() {
				if report.Reason != reason || report.Missing != 0 {
					t.Errorf("report: got %+v, want reason %s and nothing missing", report, reason)
				}
			}
			r.workAll()
			r.balanced(r.sale, live+int64(len(waiting)))
			if err := verifier.Job().Run(r.ctx()); err != nil || len(r.rebuilds()) > 2 {
				t.Errorf("a second look: %v, %d rebuilds", err, len(r.rebuilds()))
			}
		})
	}
}

// snapshot keeps what Redis holds of the sale; restore puts it back.
func (r *rig) snapshot() map[string]string {
	r.Helper()
	kept := map[string]string{}
	for _, p := range r.sale.Partitions {
		for _, key := range []string{r.keys.Sale(p, r.sale.ID), r.keys.Buyers(p, r.sale.ID)} {
			text, err := r.rdb.Dump(r.ctx(), key).Result()
			if err != nil {
				r.Fatal(err)
			}
			kept[key] = text
		}
	}
	return kept
}

func (r *rig) restore(kept map[string]string) {
	r.Helper()
	for key, text := range kept {
		if err := r.rdb.RestoreReplace(r.ctx(), key, 0, text).Err(); err != nil {
			r.Fatal(err)
		}
	}
}

// expire ends the orders of buyers, as far as Postgres goes.
func (r *rig) expire(users ...string) {
	r.Helper()
	for _, user := range users {
		r.exec(1, `
			with ended as (
				update orders set status = 'cancelled', closed_at = now() where user_id = $1 returning *
			), uncounted as (
				update sales s set sold = sold - e.quantity from ended e where s.id = e.sale_id
			)
			insert into releases (sale_id, order_id, sequence, user_id, quantity, partition, reason)
			select sale_id, id, sequence, user_id, quantity, partition, 'cancelled' from ended`, user)
	}
}

// Many verifiers at once, of which any may die at any step, leave one verified state.
func TestVerifiersAtOnce(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 500, MaxQuantity: 1}})
	r.admitMany("buyer", 300)
	r.persist(r.events(r.sale)...)
	r.flush()
	for n := range 12 { // each dies a little later than the one before
		ctx, cancel := context.WithTimeout(r.ctx(), time.Duration(n)*4*time.Millisecond)
		_ = pipeline.EnsureVerified(ctx, r.rdb, r.keys, r.store, r.opts.Partitions, r.log)
		cancel()
	}
	together(8, func(int) { r.ensure() })
	if got := r.stock(r.sale); got != 200 {
		t.Errorf("got stock %d, want 200", got)
	}
	r.balanced(r.sale, 300)
}

// TestAnOlderStateInTheSameProcessIsNotTrusted: a server that followed another one and was promoted again has the run_id under
// which it was verified, and less data.
func TestAnOlderStateInTheSameProcessIsNotTrusted(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL()})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	process := r.rdb.InfoMap(r.ctx(), "server").Item("Server", "run_id")
	replica, err := server.StartReplica(r.ctx())
	must(err)
	r.ensure() // the first replica is the beginning of another history
	must(replica.Promote(r.ctx()))
	r.admitMany("buyer", 20)
	worker := r.startWorker(r.store, pipeline.WorkerOptions{})
	r.settled()
	worker.stop()
	must(server.Follow(r.ctx(), replica))
	must(server.Promote(r.ctx()))
	if got := r.rdb.InfoMap(r.ctx(), "server").Item("Server", "run_id"); got != process {
		t.Fatalf("run_id %q became %q: this is no test of one process", process, got)
	}
	if got := r.stock(r.sale); got != 100 {
		t.Fatalf("%d units in stock, want the 100 of before", got)
	}
	if r.trusted() {
		t.Error("the older state is trusted")
	}
	for i := range 20 {
		if decision, err := r.try(pipeline.OrderRequest{UserID: fmt.Sprint("late-", i), Quantity: 1}); err == nil && decision.Result == pipeline.AdmissionAccepted {
			t.Fatal("an order was accepted on the older state")
		}
	}
	r.ensure()
	if got := r.stock(r.sale); got != 80 {
		t.Errorf("%d units in stock after the verification, want 80", got)
	}
	r.admit("late", 1)
}
