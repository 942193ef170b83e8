package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"sluice/internal/faultnet"
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	fencing "sluice/pipeline/installation"
	"sluice/pipeline/journal"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/recovery"
)

// Split brain: a replica is promoted, and verified, while one api still reaches the old primary, which trusts itself.
// That api gives out no receipts once the other server is open, and what it gave out before is submitted there.
func TestAReplacedPrimarySellsNothing(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	proxy, err := faultnet.Listen(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	old := pipelinetest.New(t,
		pipelinetest.Options{RedisURL: proxy.URL(), Sale: pipeline.Sale{Total: 300, MaxQuantity: 1}})
	replica, err := server.StartReplica(old.Ctx())
	if err != nil {
		t.Fatal(err)
	}
	old.Ensure() // the first replica is the beginning of another history
	kept := journal.Open(journal.Options{
		Dir: t.TempDir(), Installation: installation, Log: old.Logger, AppendTimeout: time.Minute,
	})
	t.Cleanup(func() { _ = kept.Close() })
	old.Admission = old.NewAdmission(old.Redis, admission.Options{Journal: kept, RequestTimeout: 2 * time.Second})
	config := old.VerifierConfig()
	config.Accepts = old.Journaled()
	verifier := recovery.NewVerifier(config)
	old.Background(old.Fence.Run)
	old.Background(verifier.Run)
	old.Background(func(ctx context.Context) { kept.Run(ctx, old.Store, verifier.SeesRedis) })
	receipts := old.AdmitMany("early", 50)
	testkit.Eventually(t, pipelinetest.CallLimit, "the replica has the early ones", func() bool {
		n, err := testkit.Client(t, replica.URL()).
			HLen(old.Ctx(), old.Keys.Buyers(old.Sale.Partitions[0], old.Sale.ID)).Result()
		return err == nil && n == 50
	})
	if err := replica.Promote(old.Ctx()); err != nil {
		t.Fatal(err)
	}
	receipts = append(receipts, old.AdmitMany("late", 50)...) // on the old primary, before anybody knows of another

	promoted := pipelinetest.New(t,
		pipelinetest.Options{RedisURL: replica.URL(), DatabaseURL: old.Options.DatabaseURL, NoSale: true})
	promoted.Sale = old.Sale
	if !promoted.Trusted() {
		t.Fatal("the promoted server is not open")
	}
	for i := range 250 {
		got, err := promoted.Try(pipeline.OrderRequest{UserID: fmt.Sprint("there-", i), Quantity: 1})
		if err == nil && got.Result == admission.Accepted {
			receipts = append(receipts, got.Receipt)
		}
	}
	for i := range 50 {
		got, err := old.Try(pipeline.OrderRequest{UserID: fmt.Sprint("here-", i), Quantity: 1})
		if err == nil && got.Result == admission.Accepted {
			t.Fatalf("the old primary gave a receipt: %+v", got.Receipt)
		}
	}

	if err := proxy.Retarget(replica.URL()); err != nil { // the api reaches the new one at last
		t.Fatal(err)
	}
	proxy.Cut()
	proxy.Heal()
	promoted.WorkAll()
	testkit.Eventually(t, pipelinetest.SettleLimit, "every receipt has a row", func() bool {
		rows := 0
		err := old.SQL.QueryRow(old.Ctx(), `select count(*) from orders`).Scan(&rows)
		return err == nil && rows == len(receipts)
	})
	stand := 0
	for _, receipt := range receipts {
		order, err := promoted.Store.Order(promoted.Ctx(), old.Sale.ID, receipt.OrderID)
		if err != nil {
			t.Fatalf("order %s: %v", receipt.OrderID, err)
		}
		if order.Status != pipeline.StatusRejected {
			stand++
		}
	}
	if stand != 300 {
		t.Errorf("%d of %d receipts for 300 units stand", stand, len(receipts))
	}
	t.Logf("%d receipts for 300 units: %d stand, the others are rejected, with a letter", len(receipts), stand)
}

// Who can't reach Postgres does not know of another server for ever.
func TestAFenceThatIsTooOldIsClosed(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	fence := fencing.NewFence(r.Store, time.Minute)
	a := r.NewAdmission(r.Redis, admission.Options{Fence: fence})
	request := pipeline.OrderRequest{UserID: "ann", Quantity: 1}
	if _, err := a.Admit(r.Ctx(), r.Sale, request); pipeline.KindOf(err) != pipeline.KindNotLoaded {
		t.Errorf("before Postgres was asked: got %v, want %s", err, pipeline.KindNotLoaded)
	}
	if _, err := fence.Refresh(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	got, err := a.Admit(r.Ctx(), r.Sale, request)
	if err != nil || got.Result != admission.Accepted {
		t.Errorf("got %q, %v, want accepted", got.Result, err)
	}
	brief := fencing.NewFence(r.Store, time.Nanosecond)
	if _, err := brief.Refresh(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	if _, err := brief.Current(0); pipeline.KindOf(err) != pipeline.KindNotLoaded {
		t.Errorf("when it is too old: got %v, want %s", err, pipeline.KindNotLoaded)
	}
}

// A process that reaches a server which was replaced refuses to use it, until the server is verified once more.
func TestAReplacedServerIsVerifiedOnlyByAnOperator(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL()})
	r.Admit("ann", 1)
	r.Exec(1, `update generation set number = number + 1`)
	r.Exec(4, `update verified_partitions set generation = (select number from generation)`) // another one's
	config := r.VerifierConfig()
	found := make(chan error, 1000)
	config.Found = func(err error) { found <- err }
	r.Background(r.Fence.Run)
	r.Background(recovery.NewVerifier(config).Run)
	testkit.Eventually(t, pipelinetest.SettleLimit, "it is found out", func() bool {
		select {
		case err := <-found:
			return errors.Is(err, fencing.ErrSuperseded)
		default:
			return false
		}
	})
	if got, err := r.Try(pipeline.OrderRequest{UserID: "bob", Quantity: 1}); err == nil &&
		got.Result == admission.Accepted {
		t.Error("it gave a receipt")
	}
	if _, err := recovery.NewVerifier(r.VerifierConfig()).
		RebuildAll(r.Ctx(), "operator", true); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, pipelinetest.SettleLimit, "it sells again", func() bool {
		got, err := r.Try(pipeline.OrderRequest{UserID: "cyd", Quantity: 1})
		return err == nil && (got.Result == admission.Accepted || got.Result == admission.AlreadyOrdered)
	})
}

// slowAccepts take long to be submitted, as many do.
type slowAccepts struct {
	recovery.KeptAccepts
	first *sync.Once
	begun chan struct{} // closed by the first call
	free  chan struct{} // closed by the test
}

func (s slowAccepts) Resubmit(ctx context.Context, of []pipeline.Partition) ([]pipeline.Partition, error) {
	s.first.Do(func() { close(s.begun) })
	<-s.free
	return s.KeptAccepts.Resubmit(ctx, of)
}

// A process that is busy submitting its accepts goes on giving signs of life: who waits for it would open the sale, and
// sell to newcomers what it has yet to submit.
func TestAProcessThatSubmitsSeesRedis(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL()})
	r.Admission = r.NewAdmission(r.Redis, admission.Options{Journal: openJournal(r, t.TempDir())})
	r.AdmitMany("buyer", 3)
	r.Flush()
	slow := slowAccepts{
		KeptAccepts: r.Journaled(), first: new(sync.Once), begun: make(chan struct{}), free: make(chan struct{}),
	}
	config := r.VerifierConfig()
	config.Accepts = slow
	verifier := recovery.NewVerifier(config)
	r.Background(verifier.Run)
	<-slow.begun
	time.Sleep(2 * time.Second) // the time is what is tested: a look is old after one
	if !verifier.SeesRedis() {
		t.Error("it gives no sign of life")
	}
	close(slow.free)
	testkit.Eventually(t, pipelinetest.SettleLimit, "Redis is verified", r.Trusted)
}
