package pipeline_test

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
)

const (
	memory  = pipeline.DurabilityMemory
	fsync   = pipeline.DurabilityFsync
	replica = pipeline.DurabilityReplica
)

// waitsForDisk reports whether a server can be asked to confirm its disk, which makes the difference where appendfsync is
// everysec.
func (r *rig) waitsForDisk() bool {
	r.Helper()
	features, err := pipeline.Probe(r.ctx(), r.rdb)
	if err != nil {
		r.Fatal(err)
	}
	return features.WaitAOF
}

// levels from weak to strong.
var levels = []pipeline.Durability{memory, fsync, replica}

// reaches lets new buyers order until one is told at a level. What a disk or a replica confirms may be late on a machine
// that is busy with something else.
func (r *rig) reaches(want pipeline.Durability) {
	r.Helper()
	n := 0
	testkit.Eventually(r.T, callLimit, "an accept at "+string(want), func() bool {
		n++
		return r.admit(fmt.Sprintf("to-%s-%d-%d", want, int(r.count("sluice_admission_batch_size")), n), 1).Durability == want
	})
}

func TestReceiptsTellWhatWasConfirmed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name       string
		settings   []string
		replicated bool
		want       pipeline.Durability
		told       pipeline.Durability
		orWaiting  pipeline.Durability // told instead by a server that has WAITAOF
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
			r := newRig(t, rigOptions{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 1 << 20}, Admission: pipeline.AdmissionOptions{Durability: test.want}})
			want := test.told
			if r.waitsForDisk() {
				want = test.orWaiting
			}
			r.reaches(want)
			receipts := r.count("sluice_admissions_durability_total")
			request := pipeline.OrderRequest{UserID: "ann", Quantity: 1, IdempotencyKey: "k"}
			first, err := r.try(request)
			if err != nil || first.Result != pipeline.AdmissionAccepted {
				t.Fatalf("got %q, %v, want accepted", first.Result, err)
			}
			first.Receipt.Durability = want // a busy disk may have been late for the accept itself
			n := 1.0
			testkit.Eventually(t, callLimit, "the same key to get the same receipt", func() bool {
				n++
				again, err := r.try(request)
				if err != nil || again.Result != pipeline.AdmissionReplayed {
					t.Fatalf("the key again: got %q, %v", again.Result, err)
				}
				return again.Receipt == first.Receipt
			})
			if got := r.count("sluice_admissions_durability_total") - receipts; got != n {
				t.Errorf("the metric counts %v of %v receipts", got, n)
			}
			for _, level := range levels[slices.Index(levels, want)+1:] {
				if got := r.labelled("sluice_admissions_durability_total", "level", string(level)); got != 0 {
					t.Errorf("%v receipts were told at %s, which nothing confirmed", got, level)
				}
			}
		})
	}
}

// TestAReplicaThatHangsHoldsNobodyUp: accepts go on, told at the lower level; when it is back, so is the level. Either
// change is logged once.
func TestAReplicaThatHangsHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	second := testkit.PrivateReplica(t, server)
	log := &lockedLog{}
	r := newRig(t, rigOptions{
		RedisURL: server.URL(), Log: slog.NewTextHandler(log, nil), Sale: pipeline.Sale{Total: 1000},
		Admission: pipeline.AdmissionOptions{Durability: replica, AttemptTimeout: callLimit},
	})
	r.reaches(replica)
	waited := r.waits()
	lower, back := log.count("less durable"), log.count("again")
	if err := second.Pause(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, user := range users("meanwhile", 20) {
		if got := r.admit(user, 1).Durability; got != fsync {
			t.Errorf("%s: got %q with the replica paused, want fsync", user, got)
		}
	}
	took := time.Since(began)
	if got, most := r.waits()-waited, int(took/time.Second)+2; got > most { // one a second waits, and the others follow it
		t.Errorf("%d of 20 accepts waited within %s, want at most %d", got, took, most)
	}
	if got := r.count("sluice_admission_retries_total"); got != 0 {
		t.Errorf("%v calls were repeated, want none: only the confirmation is missing", got)
	}
	if got := log.count("less durable") - lower; got != 1 {
		t.Errorf("the lower level was logged %d times, want once", got)
	}
	if err := second.Resume(); err != nil {
		t.Fatal(err)
	}
	r.reaches(replica)
	if got := log.count("again") - back; got != 1 {
		t.Errorf("the return was logged %d times, want once", got)
	}
}

// waits counts how often the server was asked to wait for its replicas.
func (r *rig) waits() int {
	r.Helper()
	stats, err := r.rdb.InfoMap(r.ctx(), "commandstats").Result()
	if err != nil {
		r.Fatal(err)
	}
	calls := 0
	_, _ = fmt.Sscanf(stats["Commandstats"]["cmdstat_wait"], "calls=%d", &calls) // absent before the first
	return calls
}

// TestALostReplyClaimsNothingThatWasNotConfirmed: the call is repeated on a connection that has written nothing. What it
// finds there was written on another, and no replica has it.
func TestALostReplyClaimsNothingThatWasNotConfirmed(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	second := testkit.PrivateReplica(t, server)
	r := newRig(t, rigOptions{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 1000}})
	proxy := through(t, server.URL())
	r.admission = r.newAdmission(testkit.Client(t, proxy.URL()), pipeline.AdmissionOptions{Durability: replica})
	r.admit("first", 1)
	if err := second.Pause(); err != nil {
		t.Fatal(err)
	}
	proxy.DropReplyTo("evalsha", 1)
	request := pipeline.OrderRequest{UserID: "ann", Quantity: 1, IdempotencyKey: "k"}
	got, err := r.try(request)
	if err != nil || got.Result != pipeline.AdmissionAccepted || proxy.Lost() != 1 {
		t.Fatalf("got %q, %v after %d lost replies, want accepted after 1", got.Result, err, proxy.Lost())
	}
	if got.Receipt.Durability != fsync {
		t.Errorf("got %q, want fsync: no replica has it", got.Receipt.Durability)
	}
	// Another process, whose connections have written nothing at all, is asked for the same order.
	another := r.newAdmission(r.rdb, pipeline.AdmissionOptions{Durability: replica})
	replayed, err := another.Admit(r.ctx(), r.sale, request)
	if err != nil || replayed.Receipt != got.Receipt {
		t.Errorf("elsewhere: got %+v, %v, want %+v", replayed.Receipt, err, got.Receipt)
	}
	if err := second.Resume(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, callLimit, "the replay to be told as received by the replica", func() bool {
		replayed, err := another.Admit(r.ctx(), r.sale, request)
		return err == nil && replayed.Receipt.Durability == replica
	})
}

// TestALostConfirmationIsALowerLevel: the accept stands, once, and its buyer gets his answer.
func TestALostConfirmationIsALowerLevel(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	testkit.PrivateReplica(t, server)
	r := newRig(t, rigOptions{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 1000}})
	proxy := through(t, server.URL())
	r.admission = r.newAdmission(testkit.Client(t, proxy.URL()), pipeline.AdmissionOptions{Durability: replica, AttemptTimeout: callLimit})
	r.reaches(replica)
	before := len(r.events(r.sale))
	proxy.DropReplyTo("\r\nwait\r\n", 1) // the command, not a key that begins like it
	if got := r.admit("ann", 1).Durability; got != fsync || proxy.Lost() != 1 {
		t.Errorf("got %q with %d replies lost, want fsync with 1", got, proxy.Lost())
	}
	if got := r.count("sluice_admission_retries_total"); got != 0 || len(r.events(r.sale)) != before+1 {
		t.Errorf("got %v calls repeated, %d events, want 0 and %d", got, len(r.events(r.sale)), before+1)
	}
}

// TestTheLevelFollowsTheServer: what was found out at the start says nothing about a server that was restarted with other
// settings, or that was given others while it ran.
func TestTheLevelFollowsTheServer(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 1 << 20}})
	if got := r.admit("first", 1).Durability; got != fsync {
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
	if err := server.Restart(r.ctx()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, callLimit, "Redis answers", func() bool { return r.rdb.Ping(r.ctx()).Err() == nil })
	r.ensure()
	if got := r.admit("restarted", 1).Durability; got != memory {
		t.Errorf("restarted with appendfsync no: got %q, want memory", got)
	}
	if err := r.rdb.ConfigSet(r.ctx(), "appendfsync", "always").Err(); err != nil {
		t.Fatal(err)
	}
	request := pipeline.OrderRequest{UserID: "restarted", Quantity: 1}
	testkit.Eventually(t, callLimit, "the new setting to be noticed", func() bool {
		got, err := r.try(request)
		return err == nil && got.Receipt.Durability == fsync
	})
}

// TestEveryNodeOfAClusterSpeaksForItself: two servers share the partitions, and only one has its disk confirm.
func TestEveryNodeOfAClusterSpeaksForItself(t *testing.T) {
	t.Parallel()
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
	r := newRig(t, rigOptions{RedisURL: durable.URL(), NoSale: true})
	if err := pipeline.EnsureVerified(r.ctx(), cluster, r.keys, r.store, r.opts.Partitions, r.log); err != nil {
		t.Fatal(err)
	}
	r.publisher = pipeline.NewPublisher(cluster, r.keys, r.store, r.opts.Partitions, r.log)
	r.admission = r.newAdmission(cluster, pipeline.AdmissionOptions{})
	r.sale = r.createSale(pipeline.Sale{Partitions: []pipeline.Partition{0, 1, 2, 3}})
	onDurable := map[bool]int{}
	for _, user := range users("buyer", 40) {
		here := r.rdb.Exists(r.ctx(), r.keys.Sale(r.sale.PartitionOf(user), r.sale.ID)).Val() == 1
		want := memory
		if here {
			want = fsync
		}
		onDurable[here]++
		if got := r.admit(user, 1).Durability; got != want {
			t.Errorf("%s: got %q, want %q", user, got, want)
		}
	}
	if onDurable[true] == 0 || onDurable[false] == 0 {
		t.Errorf("got %v buyers by server, want some on each", onDurable)
	}
}
