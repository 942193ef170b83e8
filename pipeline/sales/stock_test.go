package sales_test

import (
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/sales"
)

func TestRemainingIsTheSumOfTheShares(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(
		t, pipelinetest.Options{Sale: pipeline.Sale{Total: 301, Partitions: []pipeline.Partition{1, 2, 3}}},
	)
	stock := sales.NewStockReader(r.Redis, r.Keys)
	r.AdmitMany("buyer", 11)
	if got, err := stock.Remaining(r.Ctx(), r.Sale); err != nil || got != 290 {
		t.Fatalf("got %d, %v, want 290", got, err)
	}
	r.Admit("one-more", 2)
	testkit.Eventually(t, pipelinetest.CallLimit, "the order to show", func() bool {
		got, err := stock.Remaining(r.Ctx(), r.Sale)
		return err == nil && got == 288
	})
	if err := r.Redis.Del(r.Ctx(), r.Keys.Sale(2, r.Sale.ID)).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := sales.NewStockReader(r.Redis, r.Keys).Remaining(r.Ctx(), r.Sale)
	pipelinetest.WantKind(t, err, pipeline.KindNotLoaded) // two thirds of a sale are not its stock
}

// TestACrowdReadsTheStockOnce: a page that everybody reloads reads the stock a few times a second, however many ask at
// the very moment when what is known has grown old.
func TestACrowdReadsTheStockOnce(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	proxy := pipelinetest.Through(t, pipelinetest.RedisURL(r))
	client := testkit.Client(t, proxy.URL())
	stock := sales.NewStockReader(client, r.Keys)
	const crowd = 200
	if err := client.Ping(t.Context()).Err(); err != nil { // the first connection's greeting is not to be slow too
		t.Fatal(err)
	}
	proxy.Slow(50 * time.Millisecond)
	pipelinetest.Together(crowd, func(int) {
		if got, err := stock.Remaining(t.Context(), r.Sale); err != nil || got != 100 {
			t.Errorf("got %d, %v, want 100", got, err)
		}
	})
	if n := client.PoolStats().Hits + client.PoolStats().Misses; n > crowd/10 {
		t.Errorf("%d asked at once, and Redis was read %d times", crowd, n)
	}
}

func TestAStockThatRedisDoesNotReturn(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	proxy := pipelinetest.Through(t, pipelinetest.RedisURL(r))
	stock := sales.NewStockReader(testkit.Client(t, proxy.URL()), r.Keys)
	proxy.Cut()
	_, err := stock.Remaining(r.Ctx(), r.Sale)
	pipelinetest.WantKind(t, err, pipeline.KindUnavailable)
	proxy.Heal()
	if got, err := stock.Remaining(r.Ctx(), r.Sale); err != nil || got != 100 {
		t.Errorf("got %d, %v, want 100", got, err)
	}
}
