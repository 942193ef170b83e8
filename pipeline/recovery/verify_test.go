package recovery_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/recovery"
	"sluice/pipeline/worker"
)

// A server that restarted admits nobody until it was compared with Postgres. When nothing was lost, that changes
// nothing and nothing is rebuilt.
func TestARestartIsVerifiedFirst(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL()})
	r.AdmitMany("before", 30)
	r.Persist(r.Events(r.Sale)[:20]...)
	before := r.Dump(r.Sale)
	for range 2 { // in good order, and killed: it writes through either way
		if err := server.Restart(r.Ctx()); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, pipelinetest.CallLimit, "Redis answers",
			func() bool { return r.Redis.Ping(r.Ctx()).Err() == nil })
		_, err := r.Try(pipeline.OrderRequest{UserID: "early", Quantity: 1})
		pipelinetest.WantKind(t, err, pipeline.KindNotLoaded)
		answered := time.Now()
		r.Ensure()
		t.Logf("verified %s after the first answer", time.Since(answered).Round(time.Millisecond))
		if after := r.Dump(r.Sale); after != before {
			t.Errorf("verifying changed\n%s to\n%s", before, after)
		}
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	if err := server.Restart(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, pipelinetest.CallLimit, "Redis answers",
		func() bool { return r.Redis.Ping(r.Ctx()).Err() == nil })
	r.Ensure()
	r.Admit("late", 1)
	if got := r.Rebuilds(); len(got) != 0 {
		t.Errorf("rebuilt %+v, and nothing was lost", got)
	}
}

// Redis loses everything in the middle of a sale, again and again, while buyers go on and a worker has orders in
// flight. Every accept that was answered ends as one row, not one unit is sold above the total, and the sale opens by
// itself.
func TestFlushInTheMiddleOfASale(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	const stock = 3000
	r := pipelinetest.New(t,
		pipelinetest.Options{RedisURL: server.URL(), Sale: pipeline.Sale{Total: stock, MaxQuantity: 1}})
	r.Verifies()
	r.StartWorker(r.Store, worker.Options{BatchSize: 50}, r.Releaser().Job())

	accepted := &sync.Map{} // order id → user
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
				got, err := r.Admission.Admit(context.Background(), r.Sale, pipeline.OrderRequest{UserID: user, Quantity: 1})
				mu.Lock()
				switch {
				case err == nil && got.Result == admission.Accepted:
					accepted.Store(got.Receipt.OrderID, user)
					count++
				case err == nil && got.Result == admission.SoldOut:
					soldOut = true
				case err == nil ||
					pipeline.KindOf(err) != pipeline.KindNotLoaded && pipeline.KindOf(err) != pipeline.KindUnavailable:
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
		testkit.Eventually(t, pipelinetest.SettleLimit, "buyers are served",
			func() bool { return counted() >= at || t.Failed() })
		was := counted()
		r.Flush()
		flushed := time.Now()
		last.Store(i == 1)
		testkit.Eventually(t, pipelinetest.SettleLimit, "the sale is open again",
			func() bool { return counted() > was+100 || t.Failed() })
		t.Logf("flushed after %d accepts; open again, and 100 accepts later, after %s", was,
			time.Since(flushed).Round(time.Millisecond))
	}
	accepts.Wait()
	r.Settled()
	var releases int
	testkit.Eventually(t, pipelinetest.SettleLimit, "everything is given back", func() bool {
		return r.SQL.QueryRow(r.Ctx(), `select count(*) from releases where applied_at is null`).Scan(&releases) == nil &&
			releases == 0
	})
	everyAcceptHasItsRow(r, accepted)
	report, err := r.Auditor.Audit(r.Ctx(), r.Sale)
	if err != nil || !report.Exact || !report.Clean() || report.Live > stock {
		t.Errorf("audit: got %+v, %v", report, err)
	}
	if got := r.Rebuilds(); len(got) < 2 {
		t.Errorf("got the rebuilds %+v, want one for each flush", got)
	} else {
		t.Logf("rebuilds: %+v", got)
	}
}

// everyAcceptHasItsRow checks each order that was accepted: it has one row of that buyer, live, or rejected with a
// letter.
func everyAcceptHasItsRow(r *pipelinetest.Rig, accepted *sync.Map) {
	r.Helper()
	statuses := map[string]int{}
	accepted.Range(func(id, user any) bool {
		var status, owner string
		var letters int
		err := r.SQL.QueryRow(r.Ctx(), `
			select o.status, o.user_id, (select count(*) from dead_letters d where d.order_id = o.id::text)
			from orders o where o.sale_id = $1 and o.id = $2::text::uuid`, r.Sale.ID, id).Scan(&status, &owner, &letters)
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
	r.Logf("orders that were accepted: %v", statuses)
}

// Accepts that only the api knows are submitted to Redis again before any buyer may order.
func TestAcceptsThatOnlyTheAPIKnows(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 50, MaxQuantity: 1}})
	receipts := r.AdmitMany("buyer", 50) // sold out, and nothing in Postgres
	r.Flush()
	r.Verifies()
	testkit.Eventually(t, pipelinetest.SettleLimit, "Redis is verified", r.Trusted)
	if got, err := r.Try(pipeline.OrderRequest{UserID: "late", Quantity: 1}); err != nil ||
		got.Result != admission.SoldOut {
		t.Errorf("a new buyer: got %s, %v, want sold out", got.Result, err)
	}
	r.WorkAll()
	r.Balanced(r.Sale, 50)
	accepted := &sync.Map{}
	for i, receipt := range receipts {
		accepted.Store(receipt.OrderID, fmt.Sprintf("buyer-%d", i))
	}
	everyAcceptHasItsRow(r, accepted)
	if got := r.Letters(); len(got) != 0 {
		t.Errorf("got letters %v", got)
	}
}

// An api that could not look while another process rebuilt a flushed Redis (it was stopped, or cut off) finds it
// trusted under the run_id that it knows. It still submits what only it remembers to Redis again.
func TestAnAPIThatMissedALossResubmits(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 50, MaxQuantity: 1}})
	config := r.VerifierConfig()
	config.Accepts = r.Journaled()
	verifier := recovery.NewVerifier(config)
	if err := verifier.Ensure(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	receipts := r.AdmitMany("buyer", 20) // nothing of it is in Postgres
	r.Flush()
	r.Ensure() // another process verifies, from the loss to the opening
	if err := verifier.Ensure(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	r.WorkAll()
	r.Balanced(r.Sale, 20)
	accepted := &sync.Map{}
	for i, receipt := range receipts {
		accepted.Store(receipt.OrderID, fmt.Sprintf("buyer-%d", i))
	}
	everyAcceptHasItsRow(r, accepted)
}

// Keys of a sale that have the wrong type by some accident count as lost: they are rebuilt, and keep no other sale
// closed.
func TestKeysOfAnotherTypeAreRebuilt(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL()})
	r.AdmitMany("buyer", 5)
	r.WorkAll()
	p := r.Sale.Partitions[0]
	for _, key := range []string{r.Keys.Sale(p, r.Sale.ID), r.Keys.Buyers(p, r.Sale.ID)} {
		if err := r.Redis.Set(r.Ctx(), key, "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Redis.Del(r.Ctx(), r.Keys.Trusted(p)).Err(); err != nil {
		t.Fatal(err)
	}
	r.Ensure()
	r.Balanced(r.Sale, 5)
	if got := r.Rebuilds(); len(got) != 1 || got[0].Reason != "absent" {
		t.Errorf("got rebuilds %+v, want one of what is absent", got)
	}
}

// An accept that Redis lost, and whose units another buyer has since, is rejected with a letter, so that the buyer is
// notified.
func TestALostAcceptThatCannotStand(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 1, MaxQuantity: 1}})
	lost := r.Admit("ann", 1)
	r.Flush()
	r.Ensure() // another process verifies: ann's api is slow
	other := r.NewAdmission(r.Redis, admission.Options{})
	if got, err := other.Admit(r.Ctx(), r.Sale, pipeline.OrderRequest{UserID: "bob", Quantity: 1}); err != nil ||
		got.Result != admission.Accepted {
		t.Fatalf("bob: got %s, %v", got.Result, err)
	}
	accepts := r.Journaled()
	for range 2 {
		if _, err := accepts.Resubmit(r.Ctx(), r.Sale.Partitions); err != nil {
			t.Fatal(err)
		}
	}
	r.WorkAll()
	order, err := r.Store.Order(r.Ctx(), r.Sale.ID, lost.OrderID)
	if err != nil || order.Status != pipeline.StatusRejected || order.Reason != deadletter.RedisLost {
		t.Errorf("got %+v, %v, want it rejected as lost by Redis", order, err)
	}
	if got := r.Letters()[deadletter.RedisLost]; got != 1 {
		t.Errorf("got %d letters, want one", got)
	}
	r.Balanced(r.Sale, 1)
}

// A worker has events in flight while Redis loses everything: they are not persisted under the old generation, and not
// lost either.
func TestInFlightEventsOutliveALoss(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t,
		pipelinetest.Options{RedisURL: server.URL(), Partitions: 1, Sale: pipeline.Sale{Total: 40, MaxQuantity: 1}})
	r.AdmitMany("buyer", 40)
	stopped := &stoppedStore{Store: r.Store, reached: make(chan struct{}), free: make(chan struct{})}
	r.StartWorker(stopped, worker.Options{BatchSize: 40, Concurrency: 1})
	<-stopped.reached
	r.Flush()
	r.Ensure()
	if got := r.Stock(r.Sale); got != 40 {
		t.Fatalf("the rebuilt stock is %d, want 40: nothing was in Postgres", got)
	}
	close(stopped.free)
	testkit.Eventually(t, pipelinetest.SettleLimit, "every order is persisted",
		func() bool { return r.Rows(r.Sale.ID) == 40 })
	r.Settled()
	r.Balanced(r.Sale, 40)
	if got := r.Count("sluice_accepts_readmitted_total"); got != 40 {
		t.Errorf("%v accepts were submitted again, want 40", got)
	}
}

// stoppedStore stops the first batch before it reaches Postgres.
type stoppedStore struct {
	worker.Store
	once          sync.Once
	reached, free chan struct{}
}

func (s *stoppedStore) PersistMarked(
	ctx context.Context, g pipeline.Generation, events []pipeline.Event,
) ([]pipeline.PersistOutcome, map[pipeline.SalePartition]int64, error) {
	s.once.Do(func() {
		close(s.reached)
		<-s.free
	})
	return s.Store.PersistMarked(context.WithoutCancel(ctx), g, events)
}

// A state that is older than what Postgres has seen is replaced, no matter which of its counters shows it.
func TestAnOlderStateIsRebuilt(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"accepts", "releases", "absent"} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			partitions := []pipeline.Partition{1, 3}
			if reason == "releases" {
				partitions = partitions[:1] // the one that knows of releases
			}
			r := pipelinetest.New(t,
				pipelinetest.Options{Sale: pipeline.Sale{Total: 20, MaxQuantity: 2, Partitions: partitions}})
			r.AdmitMany("early", 6)
			r.Persist(r.Events(r.Sale)...)
			older := snapshot(r)
			r.AdmitMany("later", 4)
			r.Persist(r.Events(r.Sale)...)
			if reason == "releases" {
				older = snapshot(r)
				expire(r, "early-0", "early-1", "later-0")
				if err := r.Releaser().Apply(r.Ctx()); err != nil {
					t.Fatal(err)
				}
			}
			waiting := r.AdmitMany("waiting", 3) // in the stream only
			want := r.Dump(r.Sale)
			live := int64(10)
			if reason == "releases" {
				live = 7
			}
			if reason == "absent" {
				r.Lose(r.Sale)
			} else {
				restore(r, older)
			}
			r.Ensure() // it still looks verified
			verifier := recovery.NewVerifier(r.VerifierConfig())
			if err := verifier.Job().Run(r.Ctx()); err != nil {
				t.Fatal(err)
			}
			if got := r.Dump(r.Sale); got != want {
				t.Errorf("rebuilt\n%s, want\n%s", got, want)
			}
			for _, report := range r.Rebuilds() {
				if report.Reason != reason || report.Missing != 0 {
					t.Errorf("report: got %+v, want reason %s and nothing missing", report, reason)
				}
			}
			r.WorkAll()
			r.Balanced(r.Sale, live+int64(len(waiting)))
			if err := verifier.Job().Run(r.Ctx()); err != nil || len(r.Rebuilds()) > 2 {
				t.Errorf("a second look: %v, %d rebuilds", err, len(r.Rebuilds()))
			}
		})
	}
}

// snapshot keeps what Redis holds of the sale; restore puts it back.
func snapshot(r *pipelinetest.Rig) map[string]string {
	r.Helper()
	kept := map[string]string{}
	for _, p := range r.Sale.Partitions {
		for _, key := range []string{r.Keys.Sale(p, r.Sale.ID), r.Keys.Buyers(p, r.Sale.ID)} {
			text, err := r.Redis.Dump(r.Ctx(), key).Result()
			if err != nil {
				r.Fatal(err)
			}
			kept[key] = text
		}
	}
	return kept
}

func restore(r *pipelinetest.Rig, kept map[string]string) {
	r.Helper()
	for key, text := range kept {
		if err := r.Redis.RestoreReplace(r.Ctx(), key, 0, text).Err(); err != nil {
			r.Fatal(err)
		}
	}
}

// expire ends the orders of buyers, as far as Postgres goes.
func expire(r *pipelinetest.Rig, users ...string) {
	r.Helper()
	for _, user := range users {
		r.Exec(1, `
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
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 500, MaxQuantity: 1}})
	r.AdmitMany("buyer", 300)
	r.Persist(r.Events(r.Sale)...)
	r.Flush()
	for n := range 12 { // each dies a little later than the one before
		ctx, cancel := context.WithTimeout(r.Ctx(), time.Duration(n)*4*time.Millisecond)
		_ = recovery.EnsureVerified(ctx, r.Redis, r.Keys, r.Store, r.Options.Partitions, r.Logger)
		cancel()
	}
	pipelinetest.Together(8, func(int) { r.Ensure() })
	if got := r.Stock(r.Sale); got != 200 {
		t.Errorf("got stock %d, want 200", got)
	}
	r.Balanced(r.Sale, 300)
}

// TestAnOlderStateInTheSameProcessIsNotTrusted: a server that followed another one and was promoted again has the
// run_id under which it was verified, and less data.
func TestAnOlderStateInTheSameProcessIsNotTrusted(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL()})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	process := r.Redis.InfoMap(r.Ctx(), "server").Item("Server", "run_id")
	replica, err := server.StartReplica(r.Ctx())
	must(err)
	r.Ensure() // the first replica is the beginning of another history
	must(replica.Promote(r.Ctx()))
	r.AdmitMany("buyer", 20)
	worker := r.StartWorker(r.Store, worker.Options{})
	r.Settled()
	worker.Stop()
	must(server.Follow(r.Ctx(), replica))
	must(server.Promote(r.Ctx()))
	if got := r.Redis.InfoMap(r.Ctx(), "server").Item("Server", "run_id"); got != process {
		t.Fatalf("run_id %q became %q: this is no test of one process", process, got)
	}
	if got := r.Stock(r.Sale); got != 100 {
		t.Fatalf("%d units in stock, want the 100 of before", got)
	}
	if r.Trusted() {
		t.Error("the older state is trusted")
	}
	for i := range 20 {
		if decision, err := r.Try(pipeline.OrderRequest{UserID: fmt.Sprint("late-", i), Quantity: 1}); err == nil &&
			decision.Result == admission.Accepted {
			t.Fatal("an order was accepted on the older state")
		}
	}
	r.Ensure()
	if got := r.Stock(r.Sale); got != 80 {
		t.Errorf("%d units in stock after the verification, want 80", got)
	}
	r.Admit("late", 1)
}
