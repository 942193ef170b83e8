package recovery_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/worker"
)

// homeOrders is how many orders Postgres forgets; SLUICE_HOME_ORDERS sets another number. The default is several pages
// on each partition.
func homeOrders(t *testing.T) int {
	t.Helper()
	text := os.Getenv("SLUICE_HOME_ORDERS")
	if text == "" {
		return 12_000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1000 {
		t.Fatalf("SLUICE_HOME_ORDERS=%s: want a number of at least 1000", text)
	}
	return n
}

// homeLimit bounds how long they may take: many times what a million need.
const homeLimit = 15 * time.Minute

// TestManyOrdersComeHome: the restored backup is older than the sale's first order, and the sale is of several pages.
func TestManyOrdersComeHome(t *testing.T) {
	t.Parallel()
	n := homeOrders(t)
	server := testkit.PrivatePostgres(t)
	l := &ledger{Rig: pipelinetest.New(t, pipelinetest.Options{
		RedisURL: testkit.PrivateRedis(t).URL(), DatabaseURL: server.URL(),
		// Neither partition runs out, however the buyers spread over them.
		Sale: pipeline.Sale{Total: 2 * int64(n), PaymentWindow: time.Hour, Partitions: []pipeline.Partition{0, 2}},
	})}
	l.Verifies()
	testkit.Eventually(t, pipelinetest.SettleLimit, "Postgres to be examined", l.examined)
	do(t, server.Stop(l.Ctx()))
	saved, err := server.SaveData()
	do(t, err)
	do(t, server.Restart(l.Ctx()))
	testkit.Eventually(t, pipelinetest.SettleLimit, "Postgres to be examined", l.examined)
	l.StartWorker(l.Store, worker.Options{BatchSize: 500}, l.Releaser().Job())
	const crowd = 250 // what is never shed
	for i := 0; i < n; i += crowd {
		l.AdmitMany(fmt.Sprintf("many-%d", i), min(crowd, n-i))
	}
	l.Settled()
	do(t, server.Kill())
	do(t, server.RestoreData(saved))
	do(t, server.Restart(l.Ctx()))
	began := time.Now()
	testkit.Eventually(t, pipelinetest.SettleLimit, "the loss to be noticed", func() bool {
		losses, err := l.Store.LedgerLosses(l.Ctx())
		return err == nil && len(losses) > 0
	})
	t.Logf("noticed %s after it was back", time.Since(began).Round(time.Millisecond))
	testkit.Eventually(t, homeLimit, "Postgres to have all", func() bool { return l.examined() && l.Trusted() })
	t.Logf("%d orders home %s after it was back", n, time.Since(began).Round(time.Millisecond))
	l.Balanced(l.Sale, int64(n))
	l.found(int64(n), 0, 0)
	l.Admit("after", 1)
	l.Settled()
	l.Balanced(l.Sale, int64(n)+1)
}
