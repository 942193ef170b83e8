package chaos

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"sluice/internal/testkit"
)

// runLimit bounds the whole run: a minute of faults, and patience for what comes before and after.
const runLimit = 6 * time.Minute

// TestChaos is the short run: every kind of fault at least once in a minute, and nothing lost, sold twice or leaked.
// CHAOS_SEED repeats a plan. The programs have no more rights in Redis than `sluice acl --functions` gives them.
func TestChaos(t *testing.T) {
	t.Parallel()
	mustProve(t, Options{Duration: time.Minute, Least: true})
}

// TestChaosOfACluster is the short run on a Redis Cluster: masters die and stand still, replicas take over, also late
// ones, and slots move. It has the machine to itself: on a busy one nodes take each other for dead.
func TestChaosOfACluster(t *testing.T) {
	mustProve(t, Options{Duration: time.Minute, Topology: Cluster, Rate: 1200})
}

// TestChaosOnCitus is the short run on a Postgres of three nodes, which die and stand still.
func TestChaosOnCitus(t *testing.T) {
	testkit.NeedCitus(t)
	mustProve(t, Options{Duration: time.Minute, Topology: Citus, Rate: 1200})
}

func mustProve(t *testing.T, o Options) {
	t.Helper()
	if text := os.Getenv("CHAOS_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("CHAOS_SEED: %v", err)
		}
		o.Seed = seed
	}
	o = o.WithDefaults()
	t.Logf("CHAOS_SEED=%d", o.Seed)
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	defer cancel()
	r, err := Run(ctx, o, t.Output())
	if err != nil {
		t.Fatalf("seed %d: %v", o.Seed, err)
	}
	var text bytes.Buffer
	if err := r.Write(&text); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + text.String())
	if !r.OK {
		t.Errorf("seed %d: something is wrong, see above", o.Seed)
	}
}
