package testkit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/db"
	"sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // its database may be gone
	return conn
}

func count(t *testing.T, conn *pgx.Conn, what string, args ...any) int {
	t.Helper()
	var n int
	check(t, conn.QueryRow(t.Context(), "select count(*) from "+what, args...).Scan(&n))
	return n
}

func TestPrefixIsUniqueAndItsKeysGoWithTheTest(t *testing.T) {
	t.Parallel()
	client := testkit.Redis(t)
	mine := testkit.Prefix(t)
	check(t, client.Set(t.Context(), mine+":stays", 1, 0).Err())
	var other string
	t.Run("inner", func(t *testing.T) {
		other = testkit.Prefix(t)
		if other == mine {
			t.Errorf("two tests share the prefix %s", mine)
		}
		var pairs []any
		for i := range 3000 { // more than one SCAN step
			pairs = append(pairs, fmt.Sprintf("%s:{p00}:%d", other, i), i)
		}
		check(t, client.MSet(t.Context(), pairs...).Err())
	})
	if left := client.Keys(t.Context(), other+"*").Val(); len(left) != 0 {
		t.Errorf("%d keys of the inner test are left", len(left))
	}
	if got := client.Exists(t.Context(), mine+":stays").Val(); got != 1 {
		t.Error("the outer test's key went too")
	}
}

func TestDatabaseIsFreshMigratedAndGoesWithTheTest(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	conn := connect(t, url)
	version, err := db.Version(t.Context(), url)
	check(t, err)
	if version == 0 || count(t, conn, "orders") != 0 {
		t.Errorf("version %d, %d orders, want a migrated database without orders", version, count(t, conn, "orders"))
	}
	var inner string
	t.Run("inner", func(t *testing.T) {
		own := connect(t, testkit.Database(t)) // stays open: the database is dropped under it
		inner = own.Config().Database
		_, err := own.Exec(t.Context(), "create table only_here (n int)")
		check(t, err)
	})
	if inner == conn.Config().Database || count(t, conn, "pg_tables where tablename = 'only_here'") != 0 {
		t.Error("two tests share a database")
	}
	if count(t, conn, "pg_database where datname = $1", inner) != 0 {
		t.Errorf("%s outlived its test", inner)
	}
}

func TestEmptyDatabaseIsEmpty(t *testing.T) {
	t.Parallel()
	conn := connect(t, testkit.EmptyDatabase(t))
	if got := count(t, conn, "pg_tables where schemaname = 'public'"); got != 0 {
		t.Errorf("%d tables, want none", got)
	}
}

func TestPrivateServersAreNotTheSharedOnes(t *testing.T) {
	t.Parallel()
	prefix := testkit.Prefix(t)
	check(t, testkit.Redis(t).Set(t.Context(), prefix+":k", 1, 0).Err())
	redis := testkit.PrivateRedis(t, "maxmemory 5mb")
	client := testkit.Client(t, redis.URL())
	if got := client.Exists(t.Context(), prefix+":k").Val(); got != 0 {
		t.Error("the private Redis holds a key of the shared one")
	}
	if got := client.ConfigGet(t.Context(), "maxmemory").Val()["maxmemory"]; got != "5242880" {
		t.Errorf("maxmemory: got %q, want 5242880", got)
	}
	check(t, redis.Kill())
	if err := client.Ping(t.Context()).Err(); err == nil {
		t.Error("a killed server answered")
	}
	check(t, testkit.Redis(t).Ping(t.Context()).Err())

	postgres := testkit.PrivatePostgres(t, "max_connections = 30")
	conn := connect(t, postgres.URL())
	if got := count(t, conn, "pg_settings where name = 'max_connections' and setting = '30'"); got != 1 {
		t.Error("the config line had no effect")
	}
	if got := count(t, conn, "sales"); got != 0 {
		t.Errorf("%d sales, want none", got)
	}
}

// spy is a test that may fail without failing the test that watches it.
type spy struct {
	testing.TB
	failure string
}

func (s *spy) Helper() {}

func (s *spy) Fatalf(format string, args ...any) { s.failure = fmt.Sprintf(format, args...); panic(s) }

func failureOf(t *testing.T, test func(testing.TB)) (failure string) {
	t.Helper()
	s := &spy{TB: t}
	defer func() {
		if r := recover(); r != nil && r != any(s) {
			panic(r)
		}
		failure = s.failure
	}()
	test(s)
	return ""
}

func TestEventually(t *testing.T) {
	t.Parallel()
	looks := 0
	testkit.Eventually(t, time.Minute, "the third look", func() bool { looks++; return looks == 3 })
	got := failureOf(t, func(t testing.TB) {
		testkit.Eventually(t, 20*time.Millisecond, "the impossible", func() bool { return false })
	})
	if want := "waited 20ms for the impossible, in vain"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRole is what the tests below run in a process of its own, with another environment. Without a role it does
// nothing.
func TestRole(t *testing.T) {
	switch os.Getenv("TESTKIT_ROLE") {
	case "redis":
		fmt.Println("redis at", testkit.Redis(t).Options().Addr)
	case "database":
		fmt.Println("database at", testkit.Database(t))
	case "leak":
		go func() { select {} }()
	}
}

// runRole runs TestRole with an environment in which these are the only settings about servers.
func runRole(t *testing.T, role string, env ...string) (output string, exit int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestRole$", "-test.v")
	for _, setting := range os.Environ() {
		name, _, _ := strings.Cut(setting, "=")
		if name != "CI" && !strings.HasPrefix(name, "TEST_") && !strings.HasPrefix(name, "SLUICE_REQUIRE") {
			cmd.Env = append(cmd.Env, setting)
		}
	}
	cmd.Env = append(append(cmd.Env, "TESTKIT_ROLE="+role), env...)
	out, err := cmd.CombinedOutput()
	if failed := new(exec.ExitError); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func TestWhereServersComeFrom(t *testing.T) {
	t.Parallel()
	redis := testkit.PrivateRedis(t)
	socket := strings.TrimPrefix(redis.URL(), "unix://")
	for name, c := range map[string]struct {
		role string
		env  []string
		exit int
		want string
	}{
		"by URL":       {"redis", []string{"TEST_REDIS_URL=" + redis.URL()}, 0, "redis at " + socket},
		"URL demanded": {"redis", []string{"TEST_SERVERS=url"}, 0, "--- SKIP: TestRole"},
		"URL demanded, servers": {
			"redis", []string{"TEST_SERVERS=url", "SLUICE_REQUIRE_SERVERS=1"}, 1, "TEST_REDIS_URL is not set",
		},
		"URL demanded, CI":        {"redis", []string{"TEST_SERVERS=url", "CI=true"}, 1, "--- FAIL: TestRole"},
		"URL demanded, CI off":    {"redis", []string{"TEST_SERVERS=url", "CI=false"}, 0, "--- SKIP: TestRole"},
		"database URL demanded":   {"database", []string{"TEST_SERVERS=url"}, 0, "TEST_DATABASE_URL is not set"},
		"binary that can't start": {"redis", []string{"SLUICE_REDIS_SERVER=/bin/false"}, 1, "private Redis"},
		"an unknown source":       {"redis", []string{"TEST_SERVERS=cloud"}, 1, "TEST_SERVERS=cloud"},
		"not a URL":               {"database", []string{"TEST_DATABASE_URL=host=/nowhere"}, 1, "--- FAIL: TestRole"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, exit := runRole(t, c.role, c.env...)
			if exit != c.exit || !strings.Contains(out, c.want) {
				t.Errorf("got exit code %d, want %d and %q in:\n%s", exit, c.exit, c.want, out)
			}
		})
	}
}

func TestMainEndsTheServers(t *testing.T) {
	t.Parallel()
	testkit.Redis(t) // skips where there is no server
	out, exit := runRole(t, "redis", "TEST_SERVERS=local")
	_, address, _ := strings.Cut(out, "redis at ")
	address, _, _ = strings.Cut(address, "\n")
	if exit != 0 || address == "" {
		t.Fatalf("exit code %d:\n%s", exit, out)
	}
	if _, err := os.Stat(filepath.Dir(address)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", filepath.Dir(address), err)
	}
}

// A server that is not ours must not fill up with templates.
func TestMainDropsItsTemplate(t *testing.T) {
	t.Parallel()
	postgres := testkit.PrivatePostgres(t)
	out, exit := runRole(t, "database", "TEST_DATABASE_URL="+postgres.URL())
	if exit != 0 || !strings.Contains(out, "database at postgres://sluice@/sluice_test_") {
		t.Fatalf("exit code %d:\n%s", exit, out)
	}
	if got := count(t, connect(t, postgres.URL()), `pg_database where datname like 'sluice\_%'`); got != 0 {
		t.Errorf("%d databases are left", got)
	}
}

func TestMainFailsOnALeftoverGoroutine(t *testing.T) {
	t.Parallel()
	out, exit := runRole(t, "leak")
	if exit != 1 || !strings.Contains(out, "found unexpected goroutines") {
		t.Errorf("exit code %d:\n%s", exit, out)
	}
}

// The product's own client of the shared cluster reaches every node; a private cluster is a different one.
func TestClusters(t *testing.T) {
	t.Parallel()
	shared, private := testkit.RedisCluster(t), testkit.PrivateCluster(t, "maxmemory 5mb")
	client := testkit.ClusterClient(t, private.URL())
	for n := range 50 {
		check(t, shared.Set(t.Context(), fmt.Sprint(n), "shared", 0).Err())
		check(t, client.Set(t.Context(), fmt.Sprint(n), "private", 0).Err())
		if got := shared.Get(t.Context(), fmt.Sprint(n)).Val(); got != "shared" {
			t.Errorf("key %d: got %q, want shared", n, got)
		}
	}
	for n, node := range private.Nodes() {
		if got := testkit.Client(t, node.URL()).ConfigGet(t.Context(), "maxmemory").Val()["maxmemory"]; got != "5242880" {
			t.Errorf("node %d: maxmemory %q, want 5242880", n, got)
		}
	}
}
