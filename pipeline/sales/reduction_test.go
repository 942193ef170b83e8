package sales_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/recovery"
)

// wantTotal audits a sale by both stores, and compares its units.
func wantTotal(r *pipelinetest.Rig, total, stock int64) {
	r.Helper()
	report, err := r.Auditor.Audit(r.Ctx(), r.Sale)
	if err != nil || !report.Clean() || !report.Exact || report.Total != total || report.Stock != stock {
		r.Fatalf("got %+v, %v, want a total of %d and a stock of %d", report, err, total, stock)
	}
	if sale := r.Stored(r.Sale.ID); sale.Total != total || sale.ReduceTo != 0 {
		r.Fatalf("got %+v, want %d units, and no reduction under way", sale, total)
	}
}

func TestReduce(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	r.AdmitMany("queued", 20)
	r.Admit("stored", 10)
	for range 2 {
		if sale, err := r.Publisher.Reduce(r.Ctx(), r.Sale.ID, "test", 31); err != nil || sale.Total != 31 {
			t.Fatalf("got %+v, %v", sale, err)
		}
		wantTotal(r, 31, 1)
	}
	_, err := r.Publisher.Reduce(r.Ctx(), r.Sale.ID, "test", 29)
	pipelinetest.WantKind(t, err, pipeline.KindConflict)
	if want := "30 units of sale drop-1 are taken"; err.Error()[:len(want)] != want {
		t.Errorf("got %q, want %q", err, want)
	}
	wantTotal(r, 31, 1)
	if _, err := r.Publisher.Reduce(r.Ctx(), r.Sale.ID, "test", 30); err != nil {
		t.Fatal(err)
	}
	r.Persist(r.Events(r.Sale)...)
	wantTotal(r, 30, 0)
	if _, err := r.Publisher.Change(r.Ctx(), r.Sale.ID, "test", pipeline.SaleChange{AddStock: 5}); err != nil {
		t.Fatal(err)
	}
	wantTotal(r, 35, 5)
}

// While buyers order, a reduction takes what is free or nothing: no order that was accepted is refused in the end.
func TestReductionsRaceWithOrders(t *testing.T) {
	t.Parallel()
	const rounds, buyers = 20, 40
	r := pipelinetest.New(t, pipelinetest.Options{NoSale: true})
	done, refused := 0, 0
	for round := range rounds {
		r.Sale = r.CreateSale(pipeline.Sale{ID: fmt.Sprint("drop-", round), Total: buyers})
		to := int64(1 + round*buyers/rounds)
		var err error
		pipelinetest.Together(buyers+1, func(i int) {
			if i == buyers/2 {
				_, err = r.Publisher.Reduce(r.Ctx(), r.Sale.ID, "test", to)
				return
			}
			if _, err := r.Try(pipeline.OrderRequest{UserID: fmt.Sprint("buyer-", i), Quantity: 1}); err != nil {
				t.Error(err)
			}
		})
		events := r.Events(r.Sale)
		total := int64(buyers)
		switch pipeline.KindOf(err) {
		case "":
			done, total = done+1, to
		case pipeline.KindConflict:
			refused++
		default:
			t.Fatal(err)
		}
		r.Persist(events...) // each becomes a row
		wantTotal(r, total, total-int64(len(events)))
	}
	t.Logf("%d reductions, %d refused", done, refused)
}

// A process dies at every point of a reduction; the job of some worker ends what it began, once.
func TestADeadReductionIsEnded(t *testing.T) {
	t.Parallel()
	adjusted := func(r *pipelinetest.Rig, asked *pipeline.Sale) {
		wanted := *asked
		wanted.Total, wanted.Version = asked.ReduceTo, asked.Version+1
		adjust(r, &wanted, wanted.Partitions[0])
	}
	for name, die := range map[string]func(r *pipelinetest.Rig, asked *pipeline.Sale){
		"noted":          func(*pipelinetest.Rig, *pipeline.Sale) {},
		"taken by Redis": adjusted,
		"taken by a Redis that was lost": func(r *pipelinetest.Rig, asked *pipeline.Sale) {
			adjusted(r, asked)
			r.Lose(r.Sale)
			if err := recovery.NewVerifier(r.VerifierConfig()).Job().Run(r.Ctx()); err != nil {
				r.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := pipelinetest.New(t, pipelinetest.Options{})
			r.AdmitMany("buyer", 10)
			r.Persist(r.Events(r.Sale)...)
			asked, err := r.Store.BeginReduction(r.Ctx(), r.Sale.ID, "test", 40)
			if err != nil {
				t.Fatal(err)
			}
			die(r, asked)
			for range 2 {
				if err := publishBehind(r); err != nil {
					t.Fatal(err)
				}
				wantTotal(r, 40, 30)
			}
		})
	}
}

// A Redis that is lost once it has taken the units out is rebuilt with them. It is asked again, so that no buyer gets
// one that Postgres would refuse.
func TestAReductionDuringARebuild(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	asked, err := r.Store.BeginReduction(r.Ctx(), r.Sale.ID, "test", 40)
	if err != nil {
		t.Fatal(err)
	}
	before := r.Generation()
	wanted := *asked
	wanted.Total, wanted.Version = 40, 2
	adjust(r, &wanted, wanted.Partitions[0])
	r.Lose(r.Sale)
	if err := recovery.NewVerifier(r.VerifierConfig()).Job().Run(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	if sale, err := r.Store.EndReduction(r.Ctx(), asked, before, true); err != nil || sale.Total != 100 ||
		sale.ReduceTo != 40 {
		t.Fatalf("got %+v, %v, want it open still: Redis has 100 units again", sale, err)
	}
	r.AdmitMany("buyer", 50)
	_, err = r.Publisher.Reduce(r.Ctx(), r.Sale.ID, "test", 40)
	pipelinetest.WantKind(t, err, pipeline.KindConflict)
	r.Persist(r.Events(r.Sale)...)
	wantTotal(r, 100, 50)
}

// Of a sale on several partitions all follow, or none.
func TestAReductionOnSeveralPartitions(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Partitions: []pipeline.Partition{2, 0}}})
	second := ""
	for i := 0; second == ""; i++ {
		if user := fmt.Sprint("buyer-", i); r.Sale.PartitionOf(user) == 0 {
			second = user
		}
	}
	r.Admit(second, 10)
	_, err := r.Publisher.Reduce(r.Ctx(), r.Sale.ID, "test", 18) // nine each
	pipelinetest.WantKind(t, err, pipeline.KindConflict)
	wantTotal(r, 100, 90)
	if _, err := r.Publisher.Reduce(r.Ctx(), r.Sale.ID, "test", 20); err != nil {
		t.Fatal(err)
	}
	wantTotal(r, 20, 10)
}

// A Redis that is not verified says nothing of what is free.
func TestNoReductionOnAnUnverifiedRedis(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	p := r.Sale.Partitions[0]
	if err := r.Redis.Set(r.Ctx(), r.Keys.Trusted(p), "another", 0).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := r.Publisher.Reduce(r.Ctx(), r.Sale.ID, "test", 40)
	pipelinetest.WantKind(t, err, pipeline.KindNotLoaded)
	r.Ensure()
	if err := publishBehind(r); err != nil {
		t.Fatal(err)
	}
	wantTotal(r, 40, 40)
}

// What is edited reaches Redis at once, and outlives its loss.
func TestEditsReachRedisAndOutliveIt(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{PaymentWindow: time.Hour}})
	r.Admit("ann", 10)
	title, most, waiting, price, currency := "Lamp", 1, int64(5), int64(700), "EUR"
	sale, err := r.Publisher.Change(r.Ctx(), r.Sale.ID, "test", pipeline.SaleChange{
		Title: &title, MaxQuantity: &most, Waitlist: &waiting, UnitPrice: &price, Currency: &currency,
	})
	if err != nil {
		t.Fatal(err)
	}
	p := r.Sale.Partitions[0]
	wantPublished(r, r.Sale.ID, map[pipeline.Partition]int64{p: 10})
	r.Lose(r.Sale)
	if err := recovery.NewVerifier(r.VerifierConfig()).Job().Run(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	if hash := r.SaleHash(p, r.Sale.ID); hash["max_quantity"] != "1" || hash["waitlist"] != "5" || hash["version"] != "2" {
		t.Errorf("rebuilt: got %v, want what was edited", hash)
	}
	if got, err := r.Try(pipeline.OrderRequest{UserID: "bob", Quantity: 2}); err != nil || got.Result != "over-limit" {
		t.Errorf("got %+v, %v, want the new limit", got, err)
	}
	r.Persist(r.Events(r.Sale)...)
	order, err := r.Store.LatestOrder(r.Ctx(), r.Sale.ID, "ann")
	if err != nil || order.Quantity != 10 {
		t.Fatalf("got %+v, %v, want ann's ten units", order, err)
	}
	if amount, _ := sale.PriceOf(order.ID, order.Quantity); amount != 0 {
		t.Errorf("ann's order costs %d: it was asked for when there was no price", amount)
	}
}

// A process that can't read prices names none for orders that are asked for from then on.
func TestAStaleCatalogueNamesNoPrice(t *testing.T) {
	t.Parallel()
	r := newCatalogueRig(t)
	r.CreateSale(pipeline.Sale{ID: "drop-1", PaymentWindow: time.Hour, UnitPrice: 500, Currency: "EUR"})
	if err := r.catalogue.Load(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	old := uuid.Must(uuid.NewV7()).String()
	r.proxy.Cut()
	testkit.Eventually(t, pipelinetest.CallLimit, "the price to be unknown", func() bool {
		sale, err := r.catalogue.Get(r.Ctx(), "drop-1")
		if err != nil {
			t.Fatal(err)
		}
		now, _ := sale.PriceOf("", 1)
		before, currency := sale.PriceOf(old, 1)
		if before != 500 || currency != "EUR" {
			t.Fatalf("an older order costs %d %s, want what it cost", before, currency)
		}
		return now == 0
	})
	r.proxy.Heal()
	if err := r.catalogue.Load(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	sale, err := r.catalogue.Get(r.Ctx(), "drop-1")
	if amount, _ := sale.PriceOf("", 2); err != nil || amount != 1000 {
		t.Errorf("got %d, %v, want the price again", amount, err)
	}
}

// A reduction that no standby of Postgres has is not carried out in Redis: after a fail-over nobody would know of it.
func TestAReductionWaitsForTheStandby(t *testing.T) {
	t.Parallel()
	primary := testkit.PrivatePostgres(t)
	standby := testkit.PrivateStandby(t, primary)
	r := pipelinetest.New(t, pipelinetest.Options{DatabaseURL: primary.URL(), Sale: pipeline.Sale{Total: 100}})
	if err := standby.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, try := range []string{"first", "again"} {
		ctx, cancel := context.WithTimeout(r.Ctx(), 300*time.Millisecond)
		_, err := r.Publisher.Reduce(ctx, r.Sale.ID, "ann", 10)
		cancel()
		if err == nil {
			t.Errorf("%s: the reduction is reported as done", try)
		}
		testkit.Eventually(t, pipelinetest.SettleLimit, "the reduction to be visible", func() bool {
			return r.Stored(r.Sale.ID).ReduceTo == 10
		})
	}
	if got := r.Stock(r.Sale); got != 100 {
		t.Errorf("Redis has %d units, want all 100 while no standby knows of the reduction", got)
	}
}
