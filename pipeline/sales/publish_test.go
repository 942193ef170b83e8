package sales_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/sales"
)

// publishBehind runs the publishing job once, with a fresh catalogue, as some worker does every few seconds.
func publishBehind(r *pipelinetest.Rig) error {
	r.Helper()
	return r.Publisher.Job(r.Catalogue()).Run(r.Ctx())
}

// wantPublished compares Redis with Postgres: every partition has the definition and its share, less what was taken.
func wantPublished(r *pipelinetest.Rig, id string, taken map[pipeline.Partition]int64) {
	r.Helper()
	sale := r.Stored(id)
	if sale.LoadedAt.IsZero() {
		r.Errorf("Postgres does not know that the sale is loaded")
	}
	for _, p := range sale.Partitions {
		share := sale.ShareOf(p, sale.Total)
		hash := r.SaleHash(p, id)
		want := map[string]string{
			"stock": strconv.FormatInt(
				share-taken[p], 10,
			), "total": strconv.FormatInt(share, 10), "version": strconv.FormatInt(sale.Version, 10),
			"opens_ms": strconv.FormatInt(
				sale.OpensAt.UnixMilli(), 10,
			), "closes_ms": strconv.FormatInt(sale.ClosesAt.UnixMilli(), 10),
			"max_quantity": strconv.Itoa(
				sale.MaxQuantity,
			), "state": string(sale.State), "accepted": hash["accepted"], "released": "0",
			"waitlist": strconv.FormatInt(sale.ShareOf(p, sale.Waitlist), 10), "tickets": "0", "waiting": "0",
		}
		if !maps.Equal(hash, want) {
			r.Errorf("%s: Redis holds %v, want %v", p, hash, want)
		}
	}
}

func TestACreatedSaleIsInBothStores(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{NoSale: true, Partitions: 16})
	sale := pipelinetest.UsualSale(
		pipeline.Sale{ID: "drop-7", State: pipeline.SaleClosed, Version: 9, Sold: 5},
	) // what a client can't choose
	if err := r.Publisher.Create(r.Ctx(), sale); err != nil {
		t.Fatal(err)
	}
	wantPublished(r, "drop-7", nil)
	stored := r.Stored("drop-7")
	if stored.State != pipeline.SaleActive || stored.Version != 1 || stored.Sold != 0 ||
		!slices.Equal(stored.Partitions, pipeline.PlaceSale("drop-7", 16)) {
		t.Errorf("got %+v", stored)
	}
	before := r.Dump(stored)
	err := r.Publisher.Create(r.Ctx(), pipelinetest.UsualSale(pipeline.Sale{ID: "drop-7", Total: 5}))
	pipelinetest.WantKind(t, err, pipeline.KindConflict)
	if after := r.Dump(stored); after != before || r.Stored("drop-7").Total != 100 {
		t.Errorf("a second sale of that id changed the first one: %s", after)
	}
}

func TestASaleThatBreaksARuleIsNowhere(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{NoSale: true})
	sale := pipelinetest.UsualSale(pipeline.Sale{ID: "drop-1"})
	sale.Total = 0
	pipelinetest.WantKind(t, r.Publisher.Create(r.Ctx(), sale), pipeline.KindInvalid)
	if keys, err := r.Redis.Keys(r.Ctx(), r.Keys.Prefix+":*sale:*").Result(); err != nil || len(keys) != 0 {
		t.Errorf("got keys %v, %v", keys, err)
	}
	if _, err := r.Store.Sale(r.Ctx(), "drop-1"); pipeline.KindOf(err) != pipeline.KindNotFound {
		t.Errorf("got %v, want it not found", err)
	}
}

// TestTheJobEndsWhatADeadPublisherBegan: a publisher dies at every point between Postgres and Redis; the job of some
// worker ends what it began.
func TestTheJobEndsWhatADeadPublisherBegan(t *testing.T) {
	t.Parallel()
	spread := []pipeline.Partition{2, 0}
	closes := time.Now().Add(3 * time.Hour)
	paused := pipeline.SalePaused
	for name, begin := range map[string]func(r *pipelinetest.Rig, sale *pipeline.Sale){
		"created, not loaded": func(*pipelinetest.Rig, *pipeline.Sale) {},
		"loaded on one partition of two": func(r *pipelinetest.Rig, sale *pipeline.Sale) {
			load(r, sale, sale.Partitions[:1])
		},
		"loaded, not recorded": func(r *pipelinetest.Rig, sale *pipeline.Sale) {
			load(r, sale, sale.Partitions)
		},
		"changed before it was ever loaded": func(r *pipelinetest.Rig, sale *pipeline.Sale) {
			change(r, sale.ID, pipeline.SaleChange{AddStock: 7, State: &paused})
		},
		"loaded, not recorded, and changed since": func(r *pipelinetest.Rig, sale *pipeline.Sale) {
			load(r, sale, sale.Partitions)
			change(r, sale.ID, pipeline.SaleChange{AddStock: 7, ClosesAt: &closes})
		},
		"changed, not adjusted": func(r *pipelinetest.Rig, sale *pipeline.Sale) {
			publish(r, sale)
			change(r, sale.ID, pipeline.SaleChange{AddStock: 7, ClosesAt: &closes, State: &paused})
		},
		"changed twice, adjusted on one partition to the first": func(r *pipelinetest.Rig, sale *pipeline.Sale) {
			publish(r, sale)
			once := change(r, sale.ID, pipeline.SaleChange{AddStock: 7})
			adjust(r, once, once.Partitions[0])
			change(r, sale.ID, pipeline.SaleChange{AddStock: 4})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := pipelinetest.New(t, pipelinetest.Options{NoSale: true})
			sale := pipelinetest.UsualSale(pipeline.Sale{Partitions: spread})
			if err := r.Store.CreateSale(r.Ctx(), sale); err != nil {
				t.Fatal(err)
			}
			begin(r, sale)
			if err := publishBehind(r); err != nil {
				t.Fatal(err)
			}
			wantPublished(r, sale.ID, nil)
			repaired := r.Dump(sale)
			if err := publishBehind(r); err != nil {
				t.Fatal(err)
			}
			if again := r.Dump(sale); again != repaired {
				t.Errorf("a second run changed\n%s to\n%s", repaired, again)
			}
		})
	}
}

func load(r *pipelinetest.Rig, sale *pipeline.Sale, partitions []pipeline.Partition) {
	r.Helper()
	for _, p := range partitions {
		fields := saleFields(sale, p)
		if loaded, err := lua.Load(r.Ctx(), r.Redis, r.Keys.Sale(p, sale.ID), r.Keys.Trusted(p), fields); err != nil ||
			loaded != lua.LoadLoaded {
			r.Fatalf("load: %s, %v", loaded, err)
		}
	}
}

// loadedNotRecorded is a rig whose sale is loaded into Redis, on partition 1, without Postgres knowing of it.
func loadedNotRecorded(t *testing.T) *pipelinetest.Rig {
	t.Helper()
	r := pipelinetest.New(t, pipelinetest.Options{NoSale: true})
	r.Sale = pipelinetest.UsualSale(pipeline.Sale{Partitions: []pipeline.Partition{1}})
	if err := r.Store.CreateSale(r.Ctx(), r.Sale); err != nil {
		t.Fatal(err)
	}
	load(r, r.Sale, r.Sale.Partitions)
	return r
}

func adjust(r *pipelinetest.Rig, sale *pipeline.Sale, p pipeline.Partition) {
	r.Helper()
	adjusted, _, err := lua.Adjust(r.Ctx(), r.Redis, r.Keys.ForSale(p, sale.ID), sale.ID, 1000, saleFields(sale, p))
	if err != nil || adjusted != lua.AdjustAdjusted {
		r.Fatalf("adjust: %s, %v", adjusted, err)
	}
}

func saleFields(sale *pipeline.Sale, p pipeline.Partition) lua.SaleFields {
	share := sale.ShareOf(p, sale.Total)
	return lua.SaleFields{
		Stock: share, Total: share, OpensMS: sale.OpensAt.UnixMilli(), ClosesMS: sale.ClosesAt.UnixMilli(),
		MaxQuantity: sale.MaxQuantity, State: string(sale.State), Version: sale.Version,
	}
}

func publish(r *pipelinetest.Rig, sale *pipeline.Sale) {
	r.Helper()
	if err := r.Publisher.Publish(r.Ctx(), sale); err != nil {
		r.Fatal(err)
	}
}

// change changes a sale in Postgres only.
func change(r *pipelinetest.Rig, id string, change pipeline.SaleChange) *pipeline.Sale {
	r.Helper()
	sale, err := r.Store.ChangeSale(r.Ctx(), id, "test", change)
	if err != nil {
		r.Fatal(err)
	}
	return sale
}

// TestTheJobTakesNothingBackFromBuyers: orders came in before the publisher's last step was made up for. They keep what
// they took.
func TestTheJobTakesNothingBackFromBuyers(t *testing.T) {
	t.Parallel()
	r := loadedNotRecorded(t)
	sale := r.Sale
	r.Admit("ann", 3)
	if err := publishBehind(r); err != nil {
		t.Fatal(err)
	}
	wantPublished(r, sale.ID, map[pipeline.Partition]int64{1: 3})
	change(r, sale.ID, pipeline.SaleChange{AddStock: 10})
	r.Admit("bob", 4)
	if err := publishBehind(r); err != nil {
		t.Fatal(err)
	}
	wantPublished(r, sale.ID, map[pipeline.Partition]int64{1: 7})
}

func TestASaleIsCreatedAndChangedWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{NoSale: true})
	proxy := pipelinetest.Through(t, pipelinetest.RedisURL(r))
	publisher := sales.NewPublisher(testkit.Client(t, proxy.URL()), r.Keys, r.Store, 4, r.Logger)
	proxy.Cut()
	sale := pipelinetest.UsualSale(pipeline.Sale{})
	pipelinetest.WantKind(t, publisher.Create(r.Ctx(), sale), pipeline.KindUnavailable)
	pipelinetest.WantKind(t, publisher.Job(r.Catalogue()).Run(r.Ctx()), pipeline.KindUnavailable)
	proxy.Heal()
	if err := publisher.Job(r.Catalogue()).Run(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	wantPublished(r, sale.ID, nil)

	proxy.DropReplyTo("eval", 1) // done, but the reply is lost
	changed, err := publisher.Change(r.Ctx(), sale.ID, "test", pipeline.SaleChange{AddStock: 5})
	pipelinetest.WantKind(t, err, pipeline.KindUnavailable)
	if proxy.Lost() != 1 || changed.Total != 105 {
		t.Errorf("lost %d replies, the sale is %+v", proxy.Lost(), changed)
	}
	if err := publisher.Job(r.Catalogue()).Run(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	wantPublished(r, sale.ID, nil)
}

func TestASaleThatRedisLostIsNotSoldAgain(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	r.Admit("ann", 3)
	r.Lose(r.Sale)
	pipelinetest.WantKind(t, r.Publisher.Publish(r.Ctx(), r.Sale), pipeline.KindNotLoaded)
	pipelinetest.WantKind(t, publishBehind(r), pipeline.KindNotLoaded)
	_, err := r.Publisher.Change(r.Ctx(), r.Sale.ID, "test", pipeline.SaleChange{AddStock: 5})
	pipelinetest.WantKind(t, err, pipeline.KindNotLoaded)
	pipelinetest.WantKind(t, publishBehind(r), pipeline.KindNotLoaded)
	if hash := r.SaleHash(r.Sale.Partitions[0], r.Sale.ID); len(hash) != 0 {
		t.Errorf("Redis holds %v, want nothing until a rebuild", hash)
	}
}

// TestAStaleCatalogueDoesNotSellASaleAgain: a worker's catalogue can be behind: by a second, or by as long as Postgres
// is away. What it does not know of yet, that the sale was loaded and sold from, must not let it load the sale once
// more.
func TestAStaleCatalogueDoesNotSellASaleAgain(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{NoSale: true})
	proxy := pipelinetest.Through(t, pipelinetest.WithoutTLS(t, r.Options.DatabaseURL))
	publisher := sales.NewPublisher(r.Redis, r.Keys, r.OpenStore(proxy.URL()), 4, r.Logger)
	sale := pipelinetest.UsualSale(pipeline.Sale{Partitions: []pipeline.Partition{1}})
	if err := r.Store.CreateSale(r.Ctx(), sale); err != nil {
		t.Fatal(err)
	}
	stale := r.Catalogue()
	publish(r, sale)
	r.Sale = sale
	r.Admit("ann", 3)
	r.Lose(sale)
	job := publisher.Job(stale)
	pipelinetest.WantKind(t, job.Run(r.Ctx()), pipeline.KindNotLoaded)
	proxy.Cut()
	pipelinetest.WantKind(t, job.Run(r.Ctx()), pipeline.KindUnavailable)
	if hash := r.SaleHash(1, sale.ID); len(hash) != 0 {
		t.Errorf("Redis holds %v, want nothing until a rebuild", hash)
	}
}

// TestASaleWithOrdersIsNotLoadedAgain: the publisher died before it could record that the sale is loaded, and then
// Redis lost the sale. The orders prove that it was loaded.
func TestASaleWithOrdersIsNotLoadedAgain(t *testing.T) {
	t.Parallel()
	r := loadedNotRecorded(t)
	sale := r.Sale
	r.Admit("ann", 3)
	r.Persist(r.Events(sale)...)
	r.Lose(sale)
	pipelinetest.WantKind(t, publishBehind(r), pipeline.KindNotLoaded)
	if hash := r.SaleHash(1, sale.ID); len(hash) != 0 {
		t.Errorf("Redis holds %v, want nothing until a rebuild", hash)
	}
}

func TestOneLostSaleDelaysNoOther(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{ID: "a-lost"}})
	r.Lose(r.Sale)
	behind := pipelinetest.UsualSale(pipeline.Sale{ID: "z-behind", Partitions: []pipeline.Partition{0}})
	if err := r.Store.CreateSale(r.Ctx(), behind); err != nil {
		t.Fatal(err)
	}
	err := publishBehind(r)
	pipelinetest.WantKind(t, err, pipeline.KindNotLoaded)
	if !strings.Contains(err.Error(), "a-lost") {
		t.Errorf("the error does not name the sale: %v", err)
	}
	wantPublished(r, "z-behind", nil)
}

func TestPublishersAtTheSameTime(t *testing.T) {
	t.Parallel()
	const publishers = 8
	r := pipelinetest.New(t, pipelinetest.Options{NoSale: true, Partitions: 4})
	var created atomic.Int32
	pipelinetest.Together(publishers, func(i int) {
		sale := pipelinetest.UsualSale(pipeline.Sale{Total: int64(1000 + i)})
		switch err := r.Publisher.Create(r.Ctx(), sale); pipeline.KindOf(err) {
		case "":
			created.Add(1)
		case pipeline.KindConflict:
		default:
			t.Errorf("create: %v", err)
		}
	})
	if got := created.Load(); got != 1 {
		t.Fatalf("%d publishers created the sale, want 1", got)
	}
	r.Sale = r.Stored("drop-1")
	total := r.Sale.Total

	// Restocks, jobs with catalogues of all ages, and buyers, all at once.
	stale := r.Catalogue()
	var taken atomic.Int64
	pipelinetest.Together(publishers, func(i int) {
		for n := range 4 {
			if err := restock(r, i*10+n+1); err != nil {
				t.Errorf("restock: %v", err)
			}
			if err := r.Publisher.Job(stale).Run(r.Ctx()); err != nil {
				t.Errorf("job: %v", err)
			}
			decision, err := r.Try(pipeline.OrderRequest{UserID: fmt.Sprintf("buyer-%d-%d", i, n), Quantity: 2})
			if err != nil || decision.Result != admission.Accepted {
				t.Errorf("order: %s, %v", decision.Result, err)
			}
			taken.Add(2)
		}
	})
	for i := range publishers {
		for n := range 4 {
			total += int64(i*10 + n + 1)
		}
	}
	if err := publishBehind(r); err != nil {
		t.Fatal(err)
	}
	if got := r.Stored("drop-1").Total; got != total {
		t.Errorf("got a total of %d, want %d", got, total)
	}
	wantPublished(r, "drop-1", map[pipeline.Partition]int64{r.Sale.Partitions[0]: taken.Load()})
}

// restock adds units, again when other operators got in the way.
func restock(r *pipelinetest.Rig, units int) error {
	for {
		_, err := r.Publisher.Change(r.Ctx(), "drop-1", "test", pipeline.SaleChange{AddStock: int64(units)})
		if pipeline.KindOf(err) != pipeline.KindConflict {
			return err
		}
	}
}

func TestAChangeThatArrivesLateChangesNothing(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	paused := pipeline.SalePaused
	late := change(r, r.Sale.ID, pipeline.SaleChange{AddStock: 5})
	newer := change(r, r.Sale.ID, pipeline.SaleChange{State: &paused})
	publish(r, newer)
	publish(r, late)
	wantPublished(r, r.Sale.ID, nil)
}

func TestChangesThatAreRefused(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	before := r.Dump(r.Sale)
	closed, active := pipeline.SaleClosed, pipeline.SaleActive
	early := r.Sale.OpensAt.Add(-time.Second)
	hourAgo, minuteAgo := time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)
	for _, test := range []struct {
		id     string
		change pipeline.SaleChange
		want   pipeline.Kind
	}{
		{r.Sale.ID, pipeline.SaleChange{AddStock: -1}, pipeline.KindInvalid},
		{r.Sale.ID, pipeline.SaleChange{AddStock: pipeline.MaxStock}, pipeline.KindInvalid},
		{r.Sale.ID, pipeline.SaleChange{ClosesAt: &early}, pipeline.KindInvalid},
		{r.Sale.ID, pipeline.SaleChange{OpensAt: &hourAgo, ClosesAt: &minuteAgo}, pipeline.KindInvalid},
		{"nowhere", pipeline.SaleChange{AddStock: 1}, pipeline.KindNotFound},
	} {
		_, err := r.Publisher.Change(r.Ctx(), test.id, "test", test.change)
		pipelinetest.WantKind(t, err, test.want)
	}
	if after := r.Dump(r.Sale); after != before || r.Stored(r.Sale.ID).Version != 1 {
		t.Errorf("a refused change changed\n%s to\n%s", before, after)
	}
	if _, err := r.Publisher.Change(r.Ctx(), r.Sale.ID, "test", pipeline.SaleChange{State: &closed}); err != nil {
		t.Fatal(err)
	}
	_, err := r.Publisher.Change(r.Ctx(), r.Sale.ID, "test", pipeline.SaleChange{State: &active})
	pipelinetest.WantKind(t, err, pipeline.KindConflict)
	wantPublished(r, r.Sale.ID, nil)
}

func TestTheJobEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	ctx, cancel := context.WithCancel(r.Ctx())
	cancel()
	if err := r.Publisher.Job(r.Catalogue()).Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's end", err)
	}
}
