package recovery_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/faultnet"
	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/journal"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/recovery"
)

// installation of every journal in these tests: each has a directory of its own.
const installation = "0190b5f0-0000-7000-8000-000000000000"

// openJournal opens a journal that gives signs of life until the test ends.
func openJournal(r *pipelinetest.Rig, dir string) *journal.Journal {
	r.Helper()
	j := journal.Open(journal.Options{Dir: dir, Installation: installation, Log: r.Logger, AppendTimeout: time.Minute})
	r.Cleanup(func() { _ = j.Close() })
	if err := j.Announce(r.Ctx(), r.Store); err != nil {
		r.Fatal(err)
	}
	r.Background(func(ctx context.Context) { j.Run(ctx, r.Store, nil) })
	return j
}

// crowd lets new buyers try to order until it is stopped, and returns those that were accepted.
func crowd(r *pipelinetest.Rig, a *admission.Controller) (stop func() map[string]string) {
	var over atomic.Bool
	var all sync.WaitGroup
	var mu sync.Mutex
	accepted := map[string]string{}
	for b := range 4 {
		all.Go(func() {
			for n := 0; !over.Load(); n++ {
				user := fmt.Sprintf("new-%d-%d", b, n)
				got, err := a.Admit(r.Ctx(), r.Sale, pipeline.OrderRequest{UserID: user, Quantity: 1})
				if err == nil && got.Result == admission.Accepted {
					mu.Lock()
					accepted[got.Receipt.OrderID] = user
					mu.Unlock()
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	return func() map[string]string {
		over.Store(true)
		all.Wait()
		return accepted
	}
}

// allStand checks, of a sale that was sold out, that no newcomer was accepted, that each order has its row, that none
// was rejected, and that the books are balanced.
func allStand(r *pipelinetest.Rig, receipts []admission.Receipt, newcomers func() map[string]string) {
	r.Helper()
	if accepted := newcomers(); len(accepted) != 0 {
		r.Errorf("%d newcomers got units that were sold", len(accepted))
	}
	r.WorkAll()
	r.Balanced(r.Sale, int64(len(receipts)))
	for _, receipt := range receipts {
		order, err := r.Store.Order(r.Ctx(), r.Sale.ID, receipt.OrderID)
		if err != nil || order.Status == pipeline.StatusRejected {
			r.Fatalf("order %s: got %s %s, %v, want it to stand", receipt.OrderID, order.Status, order.Reason, err)
		}
	}
}

// A replica is promoted that is late, but by less than the workers are: it has all that Postgres knows of. It does not
// open before the api that answered the buyers has brought back what only it knows.
func TestALateReplicaOpensAfterTheJournals(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	proxy, err := faultnet.Listen(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: proxy.URL(), Sale: pipeline.Sale{Total: 60, MaxQuantity: 1}})
	replica, err := server.StartReplica(r.Ctx())
	if err != nil {
		t.Fatal(err)
	}
	r.Ensure() // the first replica is the beginning of another history
	r.Admission = r.NewAdmission(r.Redis, admission.Options{Journal: openJournal(r, t.TempDir())})
	receipts := r.AdmitMany("early", 10)
	r.Persist(r.Events(r.Sale)[:5]...)
	testkit.Eventually(t, pipelinetest.CallLimit, "the replica has the early ones", func() bool {
		n, err := testkit.Client(t, replica.URL()).HLen(r.Ctx(), r.Keys.Buyers(r.Sale.Partitions[0], r.Sale.ID)).Result()
		return err == nil && n == 10
	})
	if err := replica.Promote(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	receipts = append(receipts, r.AdmitMany("late", 50)...) // sold out, and the replica knows nothing of it
	newcomers := crowd(r, r.NewAdmission(r.Redis, admission.Options{RequestTimeout: time.Second}))
	if err := proxy.Retarget(replica.URL()); err != nil {
		t.Fatal(err)
	}
	proxy.Cut()
	proxy.Heal()
	r.Background(recovery.NewVerifier(r.VerifierConfig()).Run) // of a worker, which gives no receipts
	time.Sleep(time.Second)                                    // the api is slower, as it may be
	if r.Trusted() {
		t.Error("it was opened before the api was asked")
	}
	config := r.VerifierConfig()
	config.Accepts = r.Journaled()
	r.Background(recovery.NewVerifier(config).Run)
	testkit.Eventually(t, pipelinetest.SettleLimit, "Redis is verified", r.Trusted)
	allStand(r, receipts, newcomers)
}

// Redis loses everything, and the api that answered is killed in the same moment, while Postgres has nothing yet. The
// process that is started in its place brings all of it back before anybody else can order.
func TestAKilledAPIsAcceptsComeBack(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t,
		pipelinetest.Options{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 3000, MaxQuantity: 1}})
	dir := t.TempDir()
	killed := journal.Open(journal.Options{Dir: dir, Installation: installation, AppendTimeout: time.Minute})
	if err := killed.Announce(r.Ctx(), r.Store); err != nil {
		t.Fatal(err)
	}
	r.Admission = r.NewAdmission(r.Redis, admission.Options{Journal: killed})
	receipts := r.AdmitMany("buyer", 3000)
	if err := killed.Close(); err != nil { // the disk keeps what a killed process wrote, see package journal
		t.Fatal(err)
	}
	r.Flush()
	r.Admission = r.NewAdmission(r.Redis, admission.Options{Journal: openJournal(r, dir)})
	newcomers := crowd(r, r.NewAdmission(r.Redis, admission.Options{RequestTimeout: time.Second}))
	r.Verifies()
	r.Background(recovery.NewVerifier(r.VerifierConfig()).Run) // a worker's, which may be elected as well
	testkit.Eventually(t, pipelinetest.SettleLimit, "Redis is verified", r.Trusted)
	allStand(r, receipts, newcomers)
}

// Redis loses everything a second time while a verification waits for the journal of an api that lives. The api can't
// cover it on a server that is not open for it, so the verification must not go on waiting for that.
func TestALossWhileJournalsAreAwaited(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 40, MaxQuantity: 1}})
	r.Admission = r.NewAdmission(r.Redis, admission.Options{Journal: openJournal(r, t.TempDir())})
	receipts := r.AdmitMany("buyer", 40)
	newcomers := crowd(r, r.NewAdmission(r.Redis, admission.Options{RequestTimeout: time.Second}))
	r.Flush()
	r.Background(recovery.NewVerifier(r.VerifierConfig()).Run) // of a worker, which is elected
	testkit.Eventually(t, pipelinetest.SettleLimit, "the worker waits for the api", func() bool {
		seen, err := lua.ReadTrust(r.Ctx(), r.Redis, r.Keys.ForVerify(r.Sale.Partitions[0], ""))
		return err == nil && seen.Trust == lua.Reopening
	})
	r.Flush()
	config := r.VerifierConfig()
	config.Accepts = r.Journaled()
	r.Background(recovery.NewVerifier(config).Run)
	testkit.Eventually(t, pipelinetest.SettleLimit, "Redis is verified", r.Trusted)
	allStand(r, receipts, newcomers)
}

// A journal whose process is gone keeps a partition closed for some seconds, and no longer.
func TestASilentJournalIsNotWaitedForLong(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL()})
	gone := journal.Open(journal.Options{Dir: t.TempDir(), Installation: installation, AppendTimeout: time.Minute})
	if err := gone.Announce(r.Ctx(), r.Store); err != nil {
		t.Fatal(err)
	}
	r.Flush()
	began := time.Now()
	r.Ensure()
	if took := time.Since(began); took < recovery.SilentLimit {
		t.Errorf("opened after %s, want the journal to be waited for for %s", took, recovery.SilentLimit)
	}
	r.Admit("buyer", 1)
}

// A process dies after it has put a sale into Redis and before it could say so; buyers order, and Redis loses
// everything. The sale is rebuilt, and their orders come back before it is loaded as if it were new.
func TestASaleThatWasNotMarkedAsLoaded(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 50, MaxQuantity: 1}})
	r.Exec(1, `update sales set loaded_at = null where id = $1`, r.Sale.ID)
	r.Admission = r.NewAdmission(r.Redis, admission.Options{Journal: openJournal(r, t.TempDir())})
	receipts := r.AdmitMany("buyer", 50)
	r.Flush()
	newcomers := crowd(r, r.NewAdmission(r.Redis, admission.Options{RequestTimeout: time.Second}))
	r.Verifies()
	testkit.Eventually(t, pipelinetest.SettleLimit, "the sale is there again", func() bool {
		sale, err := r.Store.Sale(r.Ctx(), r.Sale.ID)
		return r.Trusted() && err == nil && r.Publisher.Publish(r.Ctx(), sale) == nil
	})
	allStand(r, receipts, newcomers)
}

// Postgres is promoted a moment late, and its generation comes a second time. What was covered in the first one does
// not count: everything is submitted again.
func TestAGenerationThatComesTwice(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 40, MaxQuantity: 1}})
	r.Admission = r.NewAdmission(r.Redis, admission.Options{Journal: openJournal(r, t.TempDir())})
	r.Verifies()
	r.Flush()
	testkit.Eventually(t, pipelinetest.SettleLimit, "Redis is verified", r.Trusted)
	receipts := r.AdmitMany("buyer", 40)
	r.Exec(1, `update generation set number = number - 1`)
	if _, err := r.SQL.Exec(r.Ctx(), `delete from accept_journals`); err != nil { // and what is covered with them
		t.Fatal(err)
	}
	newcomers := crowd(r, r.NewAdmission(r.Redis, admission.Options{RequestTimeout: time.Second}))
	r.Flush()
	testkit.Eventually(t, pipelinetest.SettleLimit, "Redis is verified", r.Trusted)
	allStand(r, receipts, newcomers)
}

// One buyer's slot that can't be read keeps no partition closed.
func TestASlotThatCanNotBeReadKeepsNothingClosed(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL()})
	r.Admission = r.NewAdmission(r.Redis, admission.Options{Journal: openJournal(r, t.TempDir())})
	r.AdmitMany("buyer", 10)
	p := r.Sale.Partitions[0]
	if err := r.Redis.HSet(r.Ctx(), r.Keys.Buyers(p, r.Sale.ID), "buyer-3", "nonsense").Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.Redis.Del(r.Ctx(), r.Keys.Trusted(p)).Err(); err != nil {
		t.Fatal(err)
	}
	r.Verifies()
	testkit.Eventually(t, recovery.CoverLimit/2, "Redis is verified", r.Trusted)
	r.Admit("late", 1)
}

// An accept vanishes from a Redis that stays trusted. A rebuild makes the api that answered bring it back, and so does
// the next process on its disk.
func TestAVanishedAcceptComesBack(t *testing.T) {
	t.Parallel()
	for name, bringBack := range map[string]func(r *pipelinetest.Rig, dir string){
		"rebuild": func(r *pipelinetest.Rig, _ string) {
			v := recovery.NewVerifier(r.VerifierConfig()) // an operator's, which gives no receipts
			testkit.Eventually(r.T, pipelinetest.SettleLimit, "the sale is rebuilt", func() bool {
				_, err := v.Rebuild(r.Ctx(), r.Sale.ID, "test", true)
				return err == nil
			})
		},
		"restart": func(r *pipelinetest.Rig, dir string) {
			if err := r.Admission.Journal().Leave(r.Ctx(), r.Store); err != nil {
				r.Fatal(err)
			}
			r.Admission = r.NewAdmission(r.Redis, admission.Options{Journal: openJournal(r, dir)})
			r.Verifies()
		},
	} {
		dir := t.TempDir()
		r := pipelinetest.New(t, pipelinetest.Options{RedisURL: testkit.PrivateRedis(t).URL()})
		r.Admission = r.NewAdmission(r.Redis, admission.Options{Journal: openJournal(r, dir)})
		r.Verifies()
		receipts := r.AdmitMany("buyer", 5)
		testkit.Eventually(t, pipelinetest.SettleLimit, "Redis is verified", r.Trusted)
		for _, e := range r.Events(r.Sale) {
			r.Forget(e)
			if err := r.Redis.HDel(r.Ctx(), r.Keys.Buyers(e.Partition, e.SaleID), e.UserID).Err(); err != nil {
				t.Fatal(err)
			}
			sale := r.Keys.Sale(e.Partition, e.SaleID)
			if err := r.Redis.HIncrBy(r.Ctx(), sale, "stock", int64(e.Quantity)).Err(); err != nil {
				t.Fatal(err)
			}
		}
		bringBack(r, dir)
		testkit.Eventually(t, pipelinetest.SettleLimit, name+": the accepts are back", func() bool {
			return r.Trusted() && len(r.Events(r.Sale)) == len(receipts)
		})
		r.WorkAll()
		r.Balanced(r.Sale, int64(len(receipts)))
	}
}
