package installation_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/installation"
	"sluice/pipeline/metrics"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/recovery"
	"sluice/pipeline/worker"
)

// other is a rig of another installation: the same Redis and keys, another migrated database.
func other(r *pipelinetest.Rig) *pipelinetest.Rig {
	r.Helper()
	o := &pipelinetest.Rig{
		T:        r.T,
		Options:  r.Options,
		Registry: prometheus.NewRegistry(),
		Logger:   r.Logger,
		Bound:    r.Bound,
	}
	o.Options.DatabaseURL = testkit.Database(r.T)
	o.Connect()
	o.Redis, o.Keys = r.Redis, r.Keys
	o.Metrics = metrics.New(o.Registry)
	return o
}

func owner(r *pipelinetest.Rig, p pipeline.Partition) string {
	return r.Redis.Get(r.Ctx(), r.Keys.Installation(p)).Val()
}

func installationID(r *pipelinetest.Rig) string {
	r.Helper()
	id, err := r.Store.Installation(r.Ctx())
	if err != nil || id == "" {
		r.Fatalf("installation: got %q, %v", id, err)
	}
	return id
}

// TestAForeignWorkerLeavesOrdersAlone: a worker of another database on the same Redis neither persists, nor buries, nor
// acknowledges what it is given; the right worker gets all of it.
func TestAForeignWorkerLeavesOrdersAlone(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	theirs := other(r)
	r.AdmitMany("buyer", 20)
	foreign := theirs.StartWorker(theirs.Store, worker.Options{ClaimMinIdle: 11 * time.Second})
	testkit.Eventually(t, pipelinetest.SettleLimit, "the foreign worker is given events", func() bool {
		return theirs.Count("sluice_worker_errors_total") > 0
	})
	foreign.Stop()
	if got := len(r.Events(r.Sale)); got != 20 {
		t.Errorf("%d of 20 events are in the stream", got)
	}
	if got := theirs.Letters(); len(got) != 0 {
		t.Errorf("the foreign worker buried %v", got)
	}
	r.StartWorker(r.Store, worker.Options{})
	r.Settled()
	r.Balanced(r.Sale, 20)
}

// TestAForeignVerifierVerifiesNothing: it neither trusts nor takes what belongs to another installation, whatever state
// it is in; an operator's rebuild doesn't either.
func TestAForeignVerifierVerifiesNothing(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	theirs := other(r)
	ensure := func() error {
		return recovery.EnsureVerified(
			theirs.Ctx(), theirs.Redis, theirs.Keys, theirs.Store, theirs.Options.Partitions, theirs.Logger,
		)
	}
	if err := ensure(); !installation.IsForeign(err) || !strings.Contains(err.Error(), installationID(r)) {
		t.Errorf("a trusted Redis: got %v, want it refused, with its owner", err)
	}
	p := r.Sale.Partitions[0]
	if err := r.Redis.Set(r.Ctx(), r.Keys.Trusted(p), "another-process", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := ensure(); !installation.IsForeign(err) {
		t.Errorf("a Redis that restarted: got %v, want it refused", err)
	}
	if got := r.Redis.Get(r.Ctx(), r.Keys.Trusted(p)).Val(); got != "another-process" {
		t.Errorf("the foreign verifier wrote %q", got)
	}
	same := pipelinetest.UsualSale(pipeline.Sale{Partitions: r.Sale.Partitions})
	if err := theirs.Store.CreateSale(theirs.Ctx(), same); err != nil {
		t.Fatal(err)
	}
	verifier := recovery.NewVerifier(theirs.VerifierConfig())
	if _, err := verifier.Rebuild(theirs.Ctx(), same.ID, "ann", true); !installation.IsForeign(err) {
		t.Errorf("a rebuild by the other installation: got %v, want it refused", err)
	}
	r.Ensure()
	if !r.Trusted() {
		t.Error("the right verifier did not verify it")
	}
}

// TestAFlushedRedisIsTakenAgain: after FLUSHALL it belongs to the installation that verifies it first, and so does one
// that lost only the key of its owner.
func TestAFlushedRedisIsTakenAgain(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL()})
	for _, command := range [][]any{{"FLUSHALL"}, {"DEL", r.Keys.Installation(1)}} {
		if err := r.Redis.Do(r.Ctx(), command...).Err(); err != nil {
			t.Fatal(err)
		}
		r.Ensure()
		for p := range pipeline.Partition(r.Options.Partitions) {
			if got := owner(r, p); got != installationID(r) {
				t.Errorf("%v: %s belongs to %q, want %q", command, p, got, installationID(r))
			}
		}
	}
}

// TestAGuardedProcessKeepsAway: open connections are refused from the verifier's next look on, new ones at once, and
// all work again when Redis is ours again.
func TestAGuardedProcessKeepsAway(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL()})
	guard := installation.NewGuard(r.Keys)
	guard.Set(installationID(r), r.Options.Partitions)
	connect := func(onConnect func(context.Context, *redis.Conn) error) *redis.Client {
		opts, err := redis.ParseURL(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		opts.OnConnect, opts.MaxRetries, opts.ContextTimeoutEnabled = onConnect, -1, true
		rdb := redis.NewClient(opts)
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	guarded, open := connect(guard.OnConnect), connect(nil)
	guarded.AddHook(guard)
	open.AddHook(guard) // only the hook: what this client is refused, it is refused on any connection
	config := r.VerifierConfig()
	config.Redis, config.Found = guarded, guard.Found
	verifier := recovery.NewVerifier(config)
	ctx, stop := context.WithCancel(r.Ctx())
	var running sync.WaitGroup
	running.Go(func() { verifier.Run(ctx) })
	defer running.Wait()
	defer stop()
	guardedAdmission := r.NewAdmission(guarded, admission.Options{})
	try := func(user string) error {
		decision, err := guardedAdmission.Admit(r.Ctx(), r.Sale, pipeline.OrderRequest{UserID: user, Quantity: 1})
		if err == nil && decision.Result != admission.Accepted {
			err = fmt.Errorf("code %s", decision.Result)
		}
		return err
	}
	if err := try("ann"); err != nil {
		t.Fatal(err)
	}
	own := func(id string) {
		for p := range pipeline.Partition(r.Options.Partitions) {
			if err := r.Redis.Set(r.Ctx(), r.Keys.Installation(p), id, 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	own("another")
	testkit.Eventually(t, pipelinetest.SettleLimit, "open connections are refused", func() bool {
		return installation.IsForeign(open.Ping(r.Ctx()).Err())
	})
	if err := try("bob"); pipeline.KindOf(err) != pipeline.KindUnavailable {
		t.Errorf("an order: got %v, want it unavailable", err)
	}
	// Without the hook: this is the connection's own check.
	if err := connect(guard.OnConnect).Ping(r.Ctx()).Err(); !installation.IsForeign(err) {
		t.Errorf("a new connection: got %v, want it refused", err)
	}
	own(installationID(r))
	testkit.Eventually(t, pipelinetest.SettleLimit, "orders are taken again", func() bool { return try("bob") == nil })
}
