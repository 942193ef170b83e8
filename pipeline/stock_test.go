package pipeline_test

import (
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
)

func TestRemainingIsTheSumOfTheShares(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: 301, Partitions: []pipeline.Partition{1, 2, 3}}})
	stock := pipeline.NewStockReader(r.rdb, r.keys)
	r.admitMany("buyer", 11)
	if got, err := stock.Remaining(r.ctx(), r.sale); err != nil || got != 290 {
		t.Fatalf("got %d, %v, want 290", got, err)
	}
	r.admit("one-more", 2)
	testkit.Eventually(t, callLimit, "the order to show", func() bool {
		got, err := stock.Remaining(r.ctx(), r.sale)
		return err == nil && got == 288
	})
	if err := r.rdb.Del(r.ctx(), r.keys.Sale(2, r.sale.ID)).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := pipeline.NewStockReader(r.rdb, r.keys).Remaining(r.ctx(), r.sale)
	wantKind(t, err, pipeline.KindNotLoaded) // two thirds of a sale are not its stock
}

// A page that everybody reloads reads the stock a few times a second, however many ask at the very moment when what is
// known has grown old.
func TestACrowdReadsTheStockOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	proxy := through(t, redisURL(r))
	client := testkit.Client(t, proxy.URL())
	stock := pipeline.NewStockReader(client, r.keys)
	const crowd = 200
	if err := client.Ping(t.Context()).Err(); err != nil { // the first connection's greeting is not to be slow too
		t.Fatal(err)
	}
	proxy.Slow(50 * time.Millisecond)
	together(crowd, func(int) {
		if got, err := stock.Remaining(t.Context(), r.sale); err != nil || got != 100 {
			t.Errorf("got %d, %v, want 100", got, err)
		}
	})
	if n := client.PoolStats().Hits + client.PoolStats().Misses; n > crowd/10 {
		t.Errorf("%d asked at once, and Redis was read %d times", crowd, n)
	}
}

func TestAStockThatRedisDoesNotTell(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	proxy := through(t, redisURL(r))
	stock := pipeline.NewStockReader(testkit.Client(t, proxy.URL()), r.keys)
	proxy.Cut()
	_, err := stock.Remaining(r.ctx(), r.sale)
	wantKind(t, err, pipeline.KindUnavailable)
	proxy.Heal()
	if got, err := stock.Remaining(r.ctx(), r.sale); err != nil || got != 100 {
		t.Errorf("got %d, %v, want 100", got, err)
	}
}
