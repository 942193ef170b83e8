package functions_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/lua/functions"
	"sluice/lua/lock"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// leaseOf leases ten numbers, as a program with functions would.
func leaseOf(t *testing.T, rdb redis.UniversalClient) error {
	t.Helper()
	_, _, err := lua.Lease(t.Context(), rdb, "sluice:{seq}:order:1", "sluice:{seq}:giver:1", 10, time.Minute)
	return err
}

// TestFunctionsTakeThePlaceOfScripts: a user who may send no script runs ours once they are loaded, and is told what to
// do before; what is of other builds stays until it is removed.
func TestFunctionsTakeThePlaceOfScripts(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	admin := testkit.Client(t, server.URL())
	rules := []string{"on", ">secret", "~*", "&*", "+@all", "-eval", "-evalsha", "-script", "-function"}
	if err := admin.ACLSetUser(t.Context(), "shop", rules...).Err(); err != nil {
		t.Fatal(err)
	}
	rdb := testkit.Client(t, strings.Replace(server.URL(), "://", "://shop:secret@", 1))
	functions.Use(rdb)

	if err := leaseOf(t, rdb); err == nil || !strings.Contains(err.Error(), "sluice functions load") {
		t.Errorf("without functions: got %v, want what to do", err)
	}
	pipe := rdb.Pipeline()
	queued := pipe.EvalSha(t.Context(), redis.NewScript(lua.Sources()["lease"]).Hash(), []string{"a", "b"}, 1, 1, 1)
	_, _ = pipe.Exec(t.Context()) // the command has the error
	if err := queued.Err(); err == nil || !strings.Contains(err.Error(), "sluice functions load") {
		t.Errorf("in a pipeline: got %v, want what to do", err)
	}
	if loaded, err := functions.Loaded(t.Context(), admin); loaded || err != nil {
		t.Errorf("loaded: got %t, %v", loaded, err)
	}
	other := "#!lua name=sluice_0123456789ab\nredis.register_function('sluice_x_0123456789ab', function() return 1 end)"
	foreign := "#!lua name=other\nredis.register_function('other', function() return 1 end)"
	for _, code := range []string{other, foreign} {
		if err := admin.FunctionLoad(t.Context(), code).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := functions.Load(t.Context(), admin); err != nil {
			t.Fatal(err)
		}
	}
	if loaded, err := functions.Loaded(t.Context(), admin); !loaded || err != nil {
		t.Errorf("loaded: got %t, %v", loaded, err)
	}
	if err := leaseOf(t, rdb); err != nil {
		t.Errorf("with functions: %v", err)
	}
	for _, want := range []int{1, 0} {
		if pruned, err := functions.Prune(t.Context(), admin); pruned != want || err != nil {
			t.Errorf("prune: got %d, %v, want %d", pruned, err, want)
		}
	}
	if err := admin.FCall(t.Context(), "other", nil).Err(); err != nil {
		t.Errorf("a function of somebody else: %v", err)
	}
	if err := rdb.EvalSha(t.Context(), strings.Repeat("0", 40), nil).Err(); err == nil ||
		!strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("another script: got %v, want NOPERM", err)
	}
}

// TestAFullServerGivesMemoryBack: a server whose memory is full refuses functions that add, before their first step,
// and runs those that take away.
func TestAFullServerGivesMemoryBack(t *testing.T) {
	t.Parallel()
	rdb := testkit.Client(t, testkit.PrivateRedis(t).URL())
	if err := functions.Load(t.Context(), rdb); err != nil {
		t.Fatal(err)
	}
	functions.Use(rdb)
	if err := rdb.Set(t.Context(), "lock", "token", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := leaseOf(t, rdb); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("a lease: got %v, want OOM", err)
	}
	if _, err := lock.UnlockMany(t.Context(), rdb, []string{"lock"}, "token"); err != nil {
		t.Errorf("unlock: %v", err)
	}
	if n := rdb.Exists(t.Context(), "lock").Val(); n != 0 {
		t.Error("the lock is still there")
	}
}

// TestFunctionsOnACluster: every master has them.
func TestFunctionsOnACluster(t *testing.T) {
	t.Parallel()
	rdb := testkit.RedisCluster(t)
	functions.Use(rdb) // before it knows a node
	if err := functions.Load(t.Context(), rdb); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"{a}", "{b}", "{c}", "{d}", "{e}", "{f}"} {
		_, _, err := lua.Lease(t.Context(), rdb, key+"counter", key+"issuer", 10, time.Minute)
		if err != nil {
			t.Errorf("%s: %v", key, err)
		}
		node, err := rdb.MasterForKey(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		conn := node.Conn() // as admission does, to have its accepts confirmed
		if _, _, err = lua.Lease(t.Context(), conn, key+"counter", key+"issuer", 10, time.Minute); err != nil {
			t.Errorf("%s on a connection of its own: %v", key, err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	err := rdb.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		stats, err := node.Info(ctx, "commandstats").Result()
		if strings.Contains(stats, "cmdstat_eval") {
			t.Errorf("%s was sent a script", node.Options().Addr)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
