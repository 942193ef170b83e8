package testkit

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"sluice/db/distribution"
	"sluice/internal/localservers"
)

// distributed is the Citus that takes the place of Postgres where TEST_POSTGRES is citus. It runs from the machine's
// binaries whatever TEST_SERVERS says.
var distributed struct {
	mu    sync.Mutex // protects the rest
	asked bool
	citus *localservers.Citus
	err   error
}

// template of the databases there, frozen, so that it can be copied.
const citusTemplate = "sluice_template"

// onCitus reports whether tests get databases that are distributed over three nodes.
func onCitus() bool { return os.Getenv("TEST_POSTGRES") == "citus" }

// citusDatabase is Database on a Citus.
func citusDatabase(t testing.TB) string {
	t.Helper()
	distributed.mu.Lock()
	defer distributed.mu.Unlock()
	if !distributed.asked {
		distributed.asked = true
		distributed.citus, distributed.err = startDistributed()
	}
	skipWithout(t, distributed.err)
	c := distributed.citus
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	name := "sluice_test_" + unique()
	if err := c.CreateDatabase(ctx, name, citusTemplate); err != nil {
		t.Fatalf("create the test's database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		if err := c.DropDatabase(ctx, name); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	address, err := withDatabase(c.URL(), name)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func startDistributed() (*localservers.Citus, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	c, err := localservers.StartCitus(ctx, sharedConnections, "fsync=off")
	if err != nil {
		return nil, localError(err)
	}
	if err := c.CreateDatabase(ctx, citusTemplate, ""); err != nil {
		return c, err
	}
	address, err := withDatabase(c.URL(), citusTemplate)
	if err == nil {
		err = migrateAndDistribute(ctx, address)
	}
	if err != nil {
		return c, err
	}
	return c, c.Freeze(ctx, citusTemplate)
}

func migrateAndDistribute(ctx context.Context, address string) error {
	if err := migrateAndGrant(ctx, address); err != nil {
		return err
	}
	_, err := distribution.Apply(ctx, address)
	return err
}

func closeDistributed() error {
	distributed.mu.Lock()
	defer distributed.mu.Unlock()
	if distributed.citus == nil {
		return nil
	}
	err := distributed.citus.Close()
	distributed.citus, distributed.err = nil, fmt.Errorf("%w: it was closed", errAbsent)
	return err
}

// NeedCitus skips a test where the Citus extension is not installed, also in CI.
func NeedCitus(t testing.TB) {
	t.Helper()
	if !localservers.HasCitus() {
		t.Skip("needs Citus, which is not installed here")
	}
}

// PrivateCitus starts a Citus of three nodes for this test alone, with a migrated and distributed database. The test
// may kill and restart each node. It is skipped where the extension is not installed.
func PrivateCitus(t testing.TB, config ...string) *localservers.Citus {
	t.Helper()
	NeedCitus(t)
	c := private(t, localservers.StartCitus, config)
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := migrateAndDistribute(ctx, c.URL()); err != nil {
		t.Fatalf("distribute the private database: %v", err)
	}
	return c
}
