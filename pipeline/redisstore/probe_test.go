package redisstore_test

import (
	"fmt"
	"strings"
	"testing"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/redisstore"
)

const (
	memory  = pipeline.DurabilityMemory
	fsync   = pipeline.DurabilityFsync
	replica = pipeline.DurabilityReplica
)

func TestTheUsualRedisIsTrusted(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	rdb := testkit.Client(t, server.URL())
	got, err := redisstore.Probe(t.Context(), rdb)
	if err != nil {
		t.Fatal(err)
	}
	want := redisstore.Features{
		Version: got.Version, RunID: got.RunID, Policy: "noeviction", AppendOnly: true, AppendFsync: "always",
		WaitAOF: got.WaitAOF, // as the server is
	}
	if got != want || got.Durability() != fsync {
		t.Errorf("got %+v, durability %s, want %+v, fsync", got, got.Durability(), want)
	}
	if major, _, ok := strings.Cut(got.Version, "."); !ok || major == "" || len(got.RunID) != 40 {
		t.Errorf("got version %q, run id %q", got.Version, got.RunID)
	}
	for _, level := range []pipeline.Durability{replica, fsync, memory} {
		if err := got.Require(level); err != nil {
			t.Errorf("%s: %v", level, err)
		}
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, err := redisstore.Probe(t.Context(), testkit.Client(t, server.URL()))
	if err != nil || again.RunID == got.RunID {
		t.Errorf("after a restart: run id %q, %v, want another than before", again.RunID, err)
	}
}

func TestARedisThatCannotBeTrusted(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	rdb := testkit.Client(t, server.URL())
	known, err := redisstore.Probe(t.Context(), rdb)
	if err != nil {
		t.Fatal(err)
	}
	refusedAt := func(says string, levels ...pipeline.Durability) map[pipeline.Durability]string {
		refused := map[pipeline.Durability]string{}
		for _, level := range levels {
			refused[level] = says
		}
		return refused
	}
	// A server with WAITAOF is asked, batch by batch, where its reply alone proves nothing: then nothing is refused.
	orAskedForTheDisk := func(says string) map[pipeline.Durability]string {
		if known.WaitAOF {
			return nil
		}
		return refusedAt(says, fsync, replica)
	}
	for _, test := range []struct {
		name     string
		settings []string // name, value, name, value, …
		want     pipeline.Durability
		refused  map[pipeline.Durability]string // what the message must name
	}{
		{"may evict", []string{"maxmemory-policy", "allkeys-lru"}, fsync, refusedAt("allkeys-lru", fsync, replica, memory)},
		{
			"may evict what expires",
			[]string{"maxmemory-policy", "volatile-ttl"},
			fsync,
			refusedAt("noeviction", fsync, replica, memory),
		},
		{
			"leaves the disk to the system",
			[]string{"maxmemory-policy", "noeviction", "appendfsync", "no"},
			memory,
			refusedAt("appendfsync no", fsync, replica),
		},
		{
			"rests while it rewrites",
			[]string{"appendfsync", "always", "no-appendfsync-on-rewrite", "yes"},
			memory,
			orAskedForTheDisk("no-appendfsync-on-rewrite yes"),
		},
		{
			"may lose a second",
			[]string{"appendfsync", "everysec", "no-appendfsync-on-rewrite", "no"},
			memory,
			orAskedForTheDisk("everysec"),
		},
		{
			"writes nothing",
			[]string{"appendfsync", "always", "appendonly", "no"},
			memory,
			refusedAt("appendonly no", fsync, replica),
		},
	} {
		for i := 0; i < len(test.settings); i += 2 {
			if err := rdb.ConfigSet(t.Context(), test.settings[i], test.settings[i+1]).Err(); err != nil {
				t.Fatal(err)
			}
		}
		features, err := redisstore.Probe(t.Context(), rdb)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if got := features.Durability(); got != test.want {
			t.Errorf("%s: got durability %s, want %s", test.name, got, test.want)
		}
		for _, level := range []pipeline.Durability{replica, fsync, memory} {
			err, says := features.Require(level), test.refused[level]
			switch {
			case says == "" && err != nil:
				t.Errorf("%s, DURABILITY=%s: %v", test.name, level, err)
			case says != "" && (pipeline.KindOf(err) != pipeline.KindInvalid || !strings.Contains(err.Error(), says)):
				t.Errorf("%s, DURABILITY=%s: got %v, want it refused for %q", test.name, level, err, says)
			}
		}
	}
}

func TestARedisWithoutConfig(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t, `rename-command CONFIG ""`, "maxmemory-policy allkeys-random")
	features, err := redisstore.Probe(t.Context(), testkit.Client(t, server.URL()))
	if err != nil {
		t.Fatal(err)
	}
	if features.Policy != "allkeys-random" || !features.AppendOnly || features.AppendFsync != "" || features.RunID == "" {
		t.Errorf("got %+v", features)
	}
	pipelinetest.WantKind(t, features.Require(memory), pipeline.KindInvalid) // INFO reports the policy
	features.Policy = "noeviction"
	if err := features.Require(memory); err != nil || features.Durability() != memory {
		t.Errorf("got %s, %v, want no more claimed than is confirmed", features.Durability(), err)
	}
	features.WaitAOF = false // with it, the server can be asked to confirm its disk
	err = features.Require(fsync)
	pipelinetest.WantKind(t, err, pipeline.KindInvalid)
	if !strings.Contains(err.Error(), "CONFIG is forbidden") {
		t.Errorf("the error does not say why fsync can't be confirmed: %v", err)
	}
}

// TestARedisThatStillLoads: while it reads its file, a server reports that it has none, which must not be believed.
func TestARedisThatStillLoads(t *testing.T) {
	t.Parallel()
	const keys, delay = 20_000, 100 // µs for each: long enough to be seen, however busy the machine is
	server := testkit.PrivateRedis(t, fmt.Sprintf("key-load-delay %d", delay))
	rdb := testkit.Client(t, server.URL())
	fill := `for i = 1, tonumber(ARGV[1]) do redis.call('SET', 'key:' .. i, string.rep('x', 100)) end return 1`
	if err := rdb.Eval(t.Context(), fill, nil, keys).Err(); err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	restarted := make(chan error, 1)
	go func() { restarted <- server.Restart(t.Context()) }()
	seen := 0
	for over := false; !over; {
		select {
		case err := <-restarted:
			if err != nil {
				t.Fatal(err)
			}
			over = true
		default:
		}
		switch features, err := redisstore.Probe(t.Context(), rdb); {
		case err == nil && features.Durability() != fsync:
			t.Fatalf("got %+v, want an error or what the server does once it has loaded", features)
		case err != nil && strings.Contains(err.Error(), "still reading its data"):
			seen++
			pipelinetest.WantKind(t, err, pipeline.KindUnavailable)
		}
	}
	if seen == 0 {
		t.Error("it was never seen loading")
	}
}

func TestARedisThatDoesNotAnswerTheProbe(t *testing.T) {
	t.Parallel()
	proxy := pipelinetest.Through(t, pipelinetest.RedisURL(&pipelinetest.Rig{T: t, Redis: testkit.Redis(t)}))
	proxy.Cut()
	_, err := redisstore.Probe(t.Context(), testkit.Client(t, proxy.URL()))
	pipelinetest.WantKind(t, err, pipeline.KindUnavailable)
}
