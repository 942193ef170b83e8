package main

import (
	"strings"
	"syscall"
	"testing"

	"sluice/internal/testkit"
	"sluice/pipeline"
)

func TestDoctorFindsNothing(t *testing.T) {
	t.Parallel()
	at := servers(t)
	if out := sluice(t, at, "doctor").mustFine(t); !strings.Contains(out, "All is well") || strings.Contains(out, "✗") {
		t.Errorf("got %q, want all well", out)
	}
	if keys := testkit.Client(t, setting(at, "REDIS_URL")).DBSize(t.Context()).Val(); keys != 0 {
		t.Errorf("the doctor left %d keys behind", keys)
	}
	findings := decoded[[]finding](t, sluice(t, at, "doctor", "--json").mustFine(t))
	if len(findings) < 10 {
		t.Errorf("got %d checks, want all of them", len(findings))
	}
}

// Each illness is found, with what to do; and one hides no other.
func TestDoctorFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	evicting := testkit.PrivateRedis(t, "maxmemory-policy allkeys-lru", "appendfsync no")
	well, deaf := testkit.PrivateRedis(t), testkit.PrivateRedis(t, "tcp-keepalive 0")
	lonely := testkit.PrivateRedis(t)
	for range 2 {
		_, err := lonely.StartReplica(t.Context())
		must(t, err)
	}
	database, empty := testkit.Database(t), testkit.EmptyDatabase(t)
	encrypted := testkit.Database(t)
	const keys = "ENCRYPTION_KEYS=k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	sluice(t, []string{"DATABASE_URL=" + encrypted, keys}, "endpoint", "add", "--url", "https://example.com/").mustFine(t)
	for _, test := range []struct {
		name     string
		settings []string
		ill      []string // the checks that must fail, and no others
		says     []string
	}{
		{
			"eviction and durability",
			[]string{"REDIS_URL=" + evicting.URL(), "DATABASE_URL=" + database},
			[]string{"Redis eviction", "Redis durability"},
			[]string{"noeviction", "appendfsync always"},
		},
		{
			"no replica",
			[]string{
				"REDIS_URL=" + deaf.URL(), "DATABASE_URL=" + database, "DURABILITY=replica", "DURABILITY_STRICT=true",
			},
			[]string{"Redis replicas", "Redis keepalive"},
			[]string{"until then orders are refused", "tcp-keepalive 60"},
		},
		{
			"a primary that does not need its replicas",
			[]string{"REDIS_URL=" + lonely.URL(), "DATABASE_URL=" + database, "DURABILITY=replica"},
			[]string{"Redis isolation"},
			[]string{"set min-replicas-to-write 1"},
		},
		{
			"schema",
			[]string{"REDIS_URL=" + well.URL(), "DATABASE_URL=" + empty},
			[]string{"schema"},
			[]string{"sluice migrate"},
		},
		{
			"ladder",
			[]string{"REDIS_URL=" + well.URL(), "DATABASE_URL=" + database, "LOCK_TTL=3s", "CLAIM_MIN_IDLE=2s"},
			[]string{"settings"},
			[]string{"BATCH_DEADLINE (5s) must be shorter than LOCK_TTL (3s)", "CLAIM_MIN_IDLE"},
		},
		{
			"a lost key",
			[]string{"REDIS_URL=" + well.URL(), "DATABASE_URL=" + encrypted},
			[]string{"endpoint secrets"},
			[]string{"endpoint 1: the endpoint's secret is encrypted under the key \"k1\"", "sluice endpoint rotate"},
		},
		{
			"secrets that are not encrypted",
			[]string{
				"REDIS_URL=" + well.URL(), "DATABASE_URL=" + encrypted, strings.Replace(keys, "k1", "k2", 1) + " " + keys[16:],
			},
			[]string{"endpoint secrets"},
			[]string{"sluice endpoint encrypt"},
		},
		{
			"no Redis",
			[]string{"REDIS_URL=redis://:hunter2@127.0.0.1:1", "DATABASE_URL=" + database, "START_TIMEOUT=5s"},
			[]string{"Redis"},
			[]string{"start Redis"},
		},
		{
			"no Postgres",
			[]string{
				"REDIS_URL=" + well.URL(), "DATABASE_URL=postgres://x:hunter2@127.0.0.1:1/x",
				"START_TIMEOUT=5s",
			},
			[]string{"Postgres"},
			[]string{"start Postgres"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := sluice(t, test.settings, "doctor", "--json")
			if got.code != 1 {
				t.Errorf("got exit code %d, want 1\n%s", got.code, got.err)
			}
			var ill []string
			for _, f := range decoded[[]finding](t, got.out) {
				if !f.OK {
					ill = append(ill, f.Check)
				}
				if f.OK != (f.Advice == "") {
					t.Errorf("%s: advice %q with ok=%v", f.Check, f.Advice, f.OK)
				}
			}
			if strings.Join(ill, ", ") != strings.Join(test.ill, ", ") {
				t.Errorf("got %q ill, want %q\n%s", ill, test.ill, got.out)
			}
			got = sluice(t, test.settings, "doctor")
			for _, text := range append(test.says, "✗", "What to do:") {
				if !strings.Contains(got.out, text) {
					t.Errorf("got %s, want it to say %q", got.out, text)
				}
			}
			if strings.Contains(got.out+got.err, "hunter2") {
				t.Errorf("a password is shown: %s%s", got.out, got.err)
			}
		})
	}
}

// A partition that is not verified is reported, with its state; a sale that was just created has verified all of them.
func TestDoctorTellsWhatIsNotVerified(t *testing.T) {
	t.Parallel()
	at := servers(t)
	sluice(t, at, "sale", "create", "--id", "drop-1", "--stock", "5").mustFine(t)
	if out := sluice(t, at, "doctor").mustFine(t); !strings.Contains(out, "16 of 16 partitions are verified") {
		t.Errorf("got %q, want all verified", out)
	}
	rdb := testkit.Client(t, setting(at, "REDIS_URL"))
	for p, value := range map[pipeline.Partition]string{3: "another-process", 5: "verifying:another-process:token"} {
		must(t, rdb.Set(t.Context(), pipeline.DefaultKeys.Trusted(p), value, 0).Err())
	}
	got := sluice(t, at, "doctor")
	if got.code != 1 || !strings.Contains(got.out, "14 of 16") ||
		!strings.Contains(got.out, "p03 untrusted, p05 verifying") {
		t.Errorf("got %+v, want both reported", got)
	}
}

func TestDoctorComparesPartitions(t *testing.T) {
	t.Parallel()
	at := servers(t)
	sluice(t, at, "sale", "create", "--id", "drop-1", "--stock", "5", "--partitions", "4").mustFine(t)
	got := sluice(t, append(at, "PARTITIONS=8"), "doctor")
	if got.code != 1 || !strings.Contains(got.out, "set PARTITIONS=4") {
		t.Errorf("got %+v, want the difference found", got)
	}
	sluice(t, append(at, "PARTITIONS=4"), "doctor").mustFine(t)
}

// TestDoctorFindsAForeignRedis: and other commands refuse the pair.
func TestDoctorFindsAForeignRedis(t *testing.T) {
	t.Parallel()
	at := servers(t)
	sluice(t, at, "sale", "create", "--id", "drop-1", "--stock", "5").mustFine(t)
	foreign := []string{"REDIS_URL=" + setting(at, "REDIS_URL"), "DATABASE_URL=" + testkit.Database(t)}
	for _, command := range []string{"doctor", "audit"} {
		got := sluice(t, foreign, command)
		if got.code == 0 || !strings.Contains(got.out+got.err, "belongs to another installation") {
			t.Errorf("%s: got %+v, want the pair refused", command, got)
		}
	}
}

// TestDoctorTellsThatEventsWait: a worker without the key of an endpoint's secret can't say so to those who look here.
func TestDoctorTellsThatEventsWait(t *testing.T) {
	t.Parallel()
	at := []string{
		"REDIS_URL=" + testkit.PrivateRedis(t).URL(), "DATABASE_URL=" + testkit.Database(t), "ADMIN_ADDR=127.0.0.1:0",
		"WEBHOOK_ALLOW_PRIVATE=true",
	}
	keys := append(at[:len(at):len(at)], "ENCRYPTION_KEYS=k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	sluice(t, keys, "endpoint", "add", "--url", "http://127.0.0.1:1/").mustFine(t)
	sluice(t, keys, "sale", "create", "--id", "drop-1", "--stock", "1").mustFine(t)
	worker := program(t.Context(), at, "worker")
	must(t, worker.Start())
	defer func() {
		_ = worker.Process.Signal(syscall.SIGTERM)
		_ = worker.Wait()
	}()
	testkit.Eventually(t, commandLimit, "the doctor to say that events wait", func() bool {
		got := sluice(t, keys, "doctor")
		return got.code == 1 && strings.Contains(got.out, "endpoint 1 gets no events, because of a worker") &&
			strings.Contains(got.out, "set ENCRYPTION_KEYS of every worker")
	})
}
