package admission_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/recovery"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/sales"
)

const (
	memory  = pipeline.DurabilityMemory
	fsync   = pipeline.DurabilityFsync
	replica = pipeline.DurabilityReplica
)

// waitsForDisk reports whether a server can be asked to confirm its disk, which decides the level where appendfsync is
// everysec.
func waitsForDisk(r *pipelinetest.Rig) bool {
	r.Helper()
	features, err := redisstore.Probe(r.Ctx(), r.Redis)
	if err != nil {
		r.Fatal(err)
	}
	return features.WaitAOF
}

// levels are all of them, from weak to strong.
var levels = []pipeline.Durability{memory, fsync, replica}

// reaches lets new buyers order until a receipt has a level. What a disk or a replica confirms may be late on a machine
// that is busy with something else.
func reaches(r *pipelinetest.Rig, want pipeline.Durability) {
	r.Helper()
	n := 0
	testkit.Eventually(r.T, pipelinetest.CallLimit, "an accept at "+string(want), func() bool {
		n++
		return r.Admit(fmt.Sprintf("to-%s-%d-%d", want, int(r.Count("sluice_admission_batch_size")), n), 1).Durability == want
	})
}

func TestReceiptsStateWhatWasConfirmed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name       string
		settings   []string
		replicated bool
		want       pipeline.Durability
		level      pipeline.Durability // of the receipt
		orWaiting  pipeline.Durability // its level instead where the server has WAITAOF
	}{
		{"every write on disk, asked for no more than a reply", nil, false, memory, memory, memory},
		{"every write on disk", nil, false, fsync, fsync, fsync},
		{"the disk once a second", []string{"appendfsync everysec"}, false, fsync, memory, fsync},
		{"the disk when the system likes", []string{"appendfsync no"}, false, fsync, memory, memory},
		{"no file", []string{"appendonly no"}, false, fsync, memory, memory},
		{"without CONFIG", []string{`rename-command CONFIG ""`, "appendfsync everysec"}, false, fsync, memory, fsync},
		{"a replica, not asked for", nil, true, fsync, fsync, fsync},
		{"a replica", nil, true, replica, replica, replica},
		{"a replica that is missing", nil, false, replica, fsync, fsync},
		{"a replica, the disk once a second", []string{"appendfsync everysec"}, true, replica, memory, replica},
		{"a replica, no file", []string{"appendonly no"}, true, replica, memory, memory},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := testkit.PrivateRedis(t, test.settings...)
			if test.replicated {
				testkit.PrivateReplica(t, server)
			}
			r := pipelinetest.New(t, pipelinetest.Options{
				RedisURL: server.URL(), Sale: pipeline.Sale{Total: 1 << 20}, Admission: admission.Options{Durability: test.want},
			})
			want := test.level
			if waitsForDisk(r) {
				want = test.orWaiting
			}
			reaches(r, want)
			receipts := r.Count("sluice_admissions_durability_total")
			request := pipeline.OrderRequest{UserID: "ann", Quantity: 1, IdempotencyKey: "k"}
			first, err := r.Try(request)
			if err != nil || first.Result != admission.Accepted {
				t.Fatalf("got %q, %v, want accepted", first.Result, err)
			}
			first.Receipt.Durability = want // a busy disk may have been late for the accept itself
			n := 1.0
			testkit.Eventually(t, pipelinetest.CallLimit, "the same key to get the same receipt", func() bool {
				n++
				again, err := r.Try(request)
				if err != nil || again.Result != admission.Replayed {
					t.Fatalf("the key again: got %q, %v", again.Result, err)
				}
				return again.Receipt == first.Receipt
			})
			if got := r.Count("sluice_admissions_durability_total") - receipts; got != n {
				t.Errorf("the metric counts %v of %v receipts", got, n)
			}
			for _, level := range levels[slices.Index(levels, want)+1:] {
				if got := r.Labelled("sluice_admissions_durability_total", "level", string(level)); got != 0 {
					t.Errorf("%v receipts state %s, which nothing confirmed", got, level)
				}
			}
		})
	}
}

// TestAReplicaThatHangsDelaysNobody: accepts go on at the lower level; when the replica is back, so is the level.
// Either change is logged once.
func TestAReplicaThatHangsDelaysNobody(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	second := testkit.PrivateReplica(t, server)
	log := &pipelinetest.LockedLog{}
	r := pipelinetest.New(t, pipelinetest.Options{
		RedisURL: server.URL(), Log: slog.NewTextHandler(log, nil), Sale: pipeline.Sale{Total: 1000},
		Admission: admission.Options{Durability: replica, AttemptTimeout: pipelinetest.CallLimit},
	})
	reaches(r, replica)
	waited := waits(r)
	lower, back := log.Count("less durable"), log.Count("again")
	if err := second.Pause(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, user := range users("meanwhile", 20) {
		if got := r.Admit(user, 1).Durability; got != fsync {
			t.Errorf("%s: got %q with the replica paused, want fsync", user, got)
		}
	}
	took := time.Since(began)
	if got, most := waits(r)-waited, int(took/time.Second)+2; got > most { // one a second waits, and the others follow it
		t.Errorf("%d of 20 accepts waited within %s, want at most %d", got, took, most)
	}
	if got := r.Count("sluice_admission_retries_total"); got != 0 {
		t.Errorf("%v calls were repeated, want none: only the confirmation is missing", got)
	}
	if got := log.Count("less durable") - lower; got != 1 {
		t.Errorf("the lower level was logged %d times, want once", got)
	}
	if err := second.Resume(); err != nil {
		t.Fatal(err)
	}
	reaches(r, replica)
	if got := log.Count("again") - back; got != 1 {
		t.Errorf("the return was logged %d times, want once", got)
	}
}

// waits counts how often the server was asked to wait for its replicas.
func waits(r *pipelinetest.Rig) int {
	r.Helper()
	stats, err := r.Redis.InfoMap(r.Ctx(), "commandstats").Result()
	if err != nil {
		r.Fatal(err)
	}
	calls := 0
	_, _ = fmt.Sscanf(stats["Commandstats"]["cmdstat_wait"], "calls=%d", &calls) // absent before the first
	return calls
}

// TestALostReplyClaimsNothingThatWasNotConfirmed: the call is repeated on a connection that has written nothing. What
// it finds there was written on another, and no replica has it.
func TestALostReplyClaimsNothingThatWasNotConfirmed(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	second := testkit.PrivateReplica(t, server)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 1000}})
	proxy := pipelinetest.Through(t, server.URL())
	r.Admission = r.NewAdmission(testkit.Client(t, proxy.URL()), admission.Options{Durability: replica})
	r.Admit("first", 1)
	if err := second.Pause(); err != nil {
		t.Fatal(err)
	}
	proxy.DropReplyTo("evalsha", 1)
	request := pipeline.OrderRequest{UserID: "ann", Quantity: 1, IdempotencyKey: "k"}
	got, err := r.Try(request)
	if err != nil || got.Result != admission.Accepted || proxy.Lost() != 1 {
		t.Fatalf("got %q, %v after %d lost replies, want accepted after 1", got.Result, err, proxy.Lost())
	}
	if got.Receipt.Durability != fsync {
		t.Errorf("got %q, want fsync: no replica has it", got.Receipt.Durability)
	}
	// Another process, whose connections have written nothing at all, is asked for the same order.
	another := r.NewAdmission(r.Redis, admission.Options{Durability: replica})
	replayed, err := another.Admit(r.Ctx(), r.Sale, request)
	if err != nil || replayed.Receipt != got.Receipt {
		t.Errorf("elsewhere: got %+v, %v, want %+v", replayed.Receipt, err, got.Receipt)
	}
	if err := second.Resume(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, pipelinetest.CallLimit, "the replay to be confirmed by the replica", func() bool {
		replayed, err := another.Admit(r.Ctx(), r.Sale, request)
		return err == nil && replayed.Receipt.Durability == replica
	})
}

// TestALostConfirmationIsALowerLevel: the accept stands, once, and its buyer gets an answer.
func TestALostConfirmationIsALowerLevel(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	testkit.PrivateReplica(t, server)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 1000}})
	proxy := pipelinetest.Through(t, server.URL())
	r.Admission = r.NewAdmission(testkit.Client(t, proxy.URL()),
		admission.Options{Durability: replica, AttemptTimeout: pipelinetest.CallLimit})
	reaches(r, replica)
	before := len(r.Events(r.Sale))
	proxy.DropReplyTo("\r\nwait\r\n", 1) // the command, not a key that begins like it
	if got := r.Admit("ann", 1).Durability; got != fsync || proxy.Lost() != 1 {
		t.Errorf("got %q with %d replies lost, want fsync with 1", got, proxy.Lost())
	}
	if got := r.Count("sluice_admission_retries_total"); got != 0 || len(r.Events(r.Sale)) != before+1 {
		t.Errorf("got %v calls repeated, %d events, want 0 and %d", got, len(r.Events(r.Sale)), before+1)
	}
}

// TestTheLevelFollowsTheServer: the first examination says nothing about a server that was restarted with other
// settings, or whose settings were changed while it ran.
func TestTheLevelFollowsTheServer(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 1 << 20}})
	if got := r.Admit("first", 1).Durability; got != fsync {
		t.Fatalf("got %q, want fsync", got)
	}
	file, err := os.OpenFile(filepath.Join(server.Dir(), "redis.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString("appendfsync no\n"); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, pipelinetest.CallLimit, "Redis answers",
		func() bool { return r.Redis.Ping(r.Ctx()).Err() == nil })
	r.Ensure()
	if got := r.Admit("restarted", 1).Durability; got != memory {
		t.Errorf("restarted with appendfsync no: got %q, want memory", got)
	}
	if err := r.Redis.ConfigSet(r.Ctx(), "appendfsync", "always").Err(); err != nil {
		t.Fatal(err)
	}
	request := pipeline.OrderRequest{UserID: "restarted", Quantity: 1}
	testkit.Eventually(t, pipelinetest.CallLimit, "the new setting to be noticed", func() bool {
		got, err := r.Try(request)
		return err == nil && got.Receipt.Durability == fsync
	})
}

// twoServers is a rig on two servers that share the partitions, and the disk of only one confirms. isDurable reports
// whether that one serves a buyer.
func twoServers(t *testing.T, opts admission.Options) (r *pipelinetest.Rig, isDurable func(user string) bool) {
	t.Helper()
	durable, lazy := testkit.PrivateRedis(t), testkit.PrivateRedis(t, "appendfsync no")
	cluster := redis.NewClusterClient(&redis.ClusterOptions{
		MaxRetries: -1, ContextTimeoutEnabled: true,
		NewClient: func(o *redis.Options) *redis.Client {
			o.Network = "unix"
			return redis.NewClient(o)
		},
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{
				{Start: 0, End: 8191, Nodes: []redis.ClusterNode{{Addr: strings.TrimPrefix(durable.URL(), "unix://")}}},
				{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: strings.TrimPrefix(lazy.URL(), "unix://")}}},
			}, nil
		},
	})
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	r = pipelinetest.New(t, pipelinetest.Options{RedisURL: durable.URL(), NoSale: true})
	if err := recovery.EnsureVerified(r.Ctx(), cluster, r.Keys, r.Store, r.Options.Partitions, r.Logger); err != nil {
		t.Fatal(err)
	}
	r.Publisher = sales.NewPublisher(cluster, r.Keys, r.Store, r.Options.Partitions, r.Logger)
	r.Admission = r.NewAdmission(cluster, opts)
	r.Sale = r.CreateSale(pipeline.Sale{Partitions: []pipeline.Partition{0, 1, 2, 3}})
	return r, func(user string) bool {
		return r.Redis.Exists(r.Ctx(), r.Keys.Sale(r.Sale.PartitionOf(user), r.Sale.ID)).Val() == 1
	}
}

func TestEveryNodeOfAClusterHasItsOwnLevel(t *testing.T) {
	t.Parallel()
	r, isDurable := twoServers(t, admission.Options{})
	onDurable := map[bool]int{}
	for _, user := range users("buyer", 40) {
		here := isDurable(user)
		want := memory
		if here {
			want = fsync
		}
		onDurable[here]++
		if got := r.Admit(user, 1).Durability; got != want {
			t.Errorf("%s: got %q, want %q", user, got, want)
		}
	}
	if onDurable[true] == 0 || onDurable[false] == 0 {
		t.Errorf("got %v buyers by server, want some on each", onDurable)
	}
}
