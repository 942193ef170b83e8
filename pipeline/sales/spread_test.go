package sales_test

import (
	"fmt"
	"testing"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/pipelinetest"
)

// TestASaleIsSpreadOverMasters: on as many partitions as asked for, of as many masters as there are.
func TestASaleIsSpreadOverMasters(t *testing.T) {
	t.Parallel()
	cluster := testkit.PrivateCluster(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: cluster.URL(), Partitions: 16, NoSale: true})
	rdb := testkit.ClusterClient(t, cluster.URL())
	for spread, want := range map[int]int{-1: 3, 0: 1, 1: 1, 2: 2, 5: 5, 16: 16} {
		sale := r.CreateSale(pipeline.Sale{ID: fmt.Sprintf("spread-%d", spread+1), Spread: spread})
		partitions, masters := map[pipeline.Partition]bool{}, map[string]bool{}
		for _, p := range sale.Partitions {
			master, err := rdb.MasterForKey(r.Ctx(), r.Keys.Orders(p))
			if err != nil {
				t.Fatal(err)
			}
			partitions[p], masters[master.Options().Addr] = true, true
		}
		if len(sale.Partitions) != want || len(partitions) != want || len(masters) != min(want, 3) {
			t.Errorf("spread %d: on %v, %d masters", spread, sale.Partitions, len(masters))
		}
		if alone := pipeline.PlaceSale(sale.ID, 16)[0]; sale.Partitions[0] != alone {
			t.Errorf("spread %d: begins on %s, and would be on %s alone", spread, sale.Partitions[0], alone)
		}
	}
	for what, sale := range map[string]pipeline.Sale{
		"a waitlist": {Spread: 2, Waitlist: 1}, "a waitlist, auto": {Spread: -1, Waitlist: 1},
		"a group": {Spread: 2, LimitGroup: "lamps", GroupLimit: 1}, "too many": {Spread: 17},
	} {
		sale.ID = "refused"
		err := r.Publisher.Create(r.Ctx(), pipelinetest.UsualSale(sale))
		if pipeline.KindOf(err) != pipeline.KindInvalid {
			t.Errorf("%s: got %v, want KindInvalid", what, err)
		}
	}
	one := int64(1)
	if _, err := r.Publisher.Change(r.Ctx(), "spread-3", "op", pipeline.SaleChange{Waitlist: &one}); pipeline.KindOf(
		err) != pipeline.KindInvalid {
		t.Errorf("a waitlist later: got %v, want KindInvalid", err)
	}
}

// TestAReductionTakesUnitsFromWhereTheyAre: what one partition has sold above its new share comes from the others.
func TestAReductionTakesUnitsFromWhereTheyAre(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 8, Spread: 4}})
	taken := 0
	for i := 0; taken < 2; i++ { // all of one partition's share
		user := fmt.Sprintf("ann-%d", i)
		if r.Sale.PartitionOf(user) == r.Sale.Partitions[2] {
			r.Admit(user, 1)
			taken++
		}
	}
	if _, err := r.Publisher.Reduce(r.Ctx(), r.Sale.ID, "op", 4); pipeline.KindOf(err) != pipeline.KindConflict {
		t.Fatalf("without moves: got %v, want KindConflict", err)
	}
	r.Publisher.BringWith(r.Mover(r.Redis, r.Store))
	sale, err := r.Publisher.Reduce(r.Ctx(), r.Sale.ID, "op", 3)
	if err != nil || sale.Total != 3 {
		t.Fatalf("got %d units, %v, want 3", sale.Total, err)
	}
	if got := r.Stock(sale); got != 1 {
		t.Errorf("%d units are left, want 1", got)
	}
	if _, err := r.Publisher.Reduce(r.Ctx(), r.Sale.ID, "op", 1); pipeline.KindOf(err) != pipeline.KindConflict {
		t.Errorf("below what is taken: got %v, want KindConflict", err)
	}
	r.WorkAll()
	r.Balanced(r.Stored(sale.ID), 2)
}

// TestASaleThatWasLoadedInPart: the process that created it died on the way, and others have bought since. Where
// nothing is stored of it, it was never loaded.
func TestASaleThatWasLoadedInPart(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 8, Spread: 4}})
	sold, missing := r.Sale.Partitions[0], r.Sale.Partitions[2]
	r.Exec(1, `update sales set loaded_at = null, sold = 1 where id = $1`, r.Sale.ID)
	r.Exec(1, `insert into watermarks (sale_id, partition, seq) values ($1, $2, 1)
		on conflict (sale_id, partition) do update set seq = 1`, r.Sale.ID, sold)
	for _, p := range []pipeline.Partition{sold, missing} {
		if err := r.Redis.Del(r.Ctx(), r.Keys.Sale(p, r.Sale.ID)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	err := r.Publisher.Publish(r.Ctx(), r.Stored(r.Sale.ID))
	if pipeline.KindOf(err) != pipeline.KindNotLoaded {
		t.Errorf("got %v, want KindNotLoaded: Redis has lost a part of it", err)
	}
	for p, want := range map[pipeline.Partition]int64{sold: 0, missing: 1} {
		if got := r.Redis.Exists(r.Ctx(), r.Keys.Sale(p, r.Sale.ID)).Val(); got != want {
			t.Errorf("partition %s: in Redis %d, want %d", p, got, want)
		}
	}
}
