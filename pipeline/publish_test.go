package pipeline_test

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
)

// mend runs the publishing job once, with a fresh catalogue, as some worker does every few seconds.
func (r *rig) mend() error {
	r.Helper()
	return r.publisher.Job(r.catalogue()).Run(r.ctx())
}

// wantPublished holds Redis against Postgres: every partition has the definition and its share, less what was taken.
func (r *rig) wantPublished(id string, taken map[pipeline.Partition]int64) {
	r.Helper()
	sale := r.stored(id)
	if sale.LoadedAt.IsZero() {
		r.Errorf("Postgres does not know that the sale is loaded")
	}
	for _, p := range sale.Partitions {
		share := sale.ShareOf(p, sale.Total)
		hash := r.saleHash(p, id)
		want := map[string]string{
			"stock": strconv.FormatInt(share-taken[p], 10), "total": strconv.FormatInt(share, 10), "version": strconv.FormatInt(sale.Version, 10),
			"opens_ms": strconv.FormatInt(sale.OpensAt.UnixMilli(), 10), "closes_ms": strconv.FormatInt(sale.ClosesAt.UnixMilli(), 10),
			"max_quantity": strconv.Itoa(sale.MaxQuantity), "state": string(sale.State), "accepted": hash["accepted"], "released": "0",
			"waitlist": strconv.FormatInt(sale.ShareOf(p, sale.Waitlist), 10), "tickets": "0", "waiting": "0",
		}
		if !maps.Equal(hash, want) {
			r.Errorf("%s: Redis holds %v, want %v", p, hash, want)
		}
	}
}

func TestACreatedSaleIsInBothStores(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{NoSale: true, Partitions: 16})
	sale := usualSale(pipeline.Sale{ID: "drop-7", State: pipeline.SaleClosed, Version: 9, Sold: 5}) // what a client can't choose
	if err := r.publisher.Create(r.ctx(), sale); err != nil {
		t.Fatal(err)
	}
	r.wantPublished("drop-7", nil)
	stored := r.stored("drop-7")
	if stored.State != pipeline.SaleActive || stored.Version != 1 || stored.Sold != 0 || !slices.Equal(stored.Partitions, pipeline.PlaceSale("drop-7", 16)) {
		t.Errorf("got %+v", stored)
	}
	before := r.dump(stored)
	err := r.publisher.Create(r.ctx(), usualSale(pipeline.Sale{ID: "drop-7", Total: 5}))
	wantKind(t, err, pipeline.KindConflict)
	if after := r.dump(stored); after != before || r.stored("drop-7").Total != 100 {
		t.Errorf("a second sale of that id changed the first one: %s", after)
	}
}

func TestASaleThatBreaksARuleIsNowhere(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{NoSale: true})
	sale := usualSale(pipeline.Sale{ID: "drop-1"})
	sale.Total = 0
	wantKind(t, r.publisher.Create(r.ctx(), sale), pipeline.KindInvalid)
	if keys, err := r.rdb.Keys(r.ctx(), r.keys.Prefix+":*sale:*").Result(); err != nil || len(keys) != 0 {
		t.Errorf("got keys %v, %v", keys, err)
	}
	if _, err := r.store.Sale(r.ctx(), "drop-1"); pipeline.KindOf(err) != pipeline.KindNotFound {
		t.Errorf("got %v, want it not found", err)
	}
}

// A publisher dies at every point between Postgres and Redis; the job of some worker ends what it began.
func TestTheJobEndsWhatADeadPublisherBegan(t *testing.T) {
	t.Parallel()
	spread := []pipeline.Partition{2, 0}
	closes := time.Now().Add(3 * time.Hour)
	paused := pipeline.SalePaused
	for name, begin := range map[string]func(r *rig, sale *pipeline.Sale){
		"created, not loaded": func(*rig, *pipeline.Sale) {},
		"loaded on one partition of two": func(r *rig, sale *pipeline.Sale) {
			r.load(sale, sale.Partitions[:1])
		},
		"loaded, not marked": func(r *rig, sale *pipeline.Sale) {
			r.load(sale, sale.Partitions)
		},
		"changed before it was ever loaded": func(r *rig, sale *pipeline.Sale) {
			r.change(sale.ID, pipeline.SaleChange{AddStock: 7, State: &paused})
		},
		"loaded, not marked, and changed since": func(r *rig, sale *pipeline.Sale) {
			r.load(sale, sale.Partitions)
			r.change(sale.ID, pipeline.SaleChange{AddStock: 7, ClosesAt: &closes})
		},
		"changed, not adjusted": func(r *rig, sale *pipeline.Sale) {
			r.publish(sale)
			r.change(sale.ID, pipeline.SaleChange{AddStock: 7, ClosesAt: &closes, State: &paused})
		},
		"changed twice, adjusted on one partition to the first": func(r *rig, sale *pipeline.Sale) {
			r.publish(sale)
			once := r.change(sale.ID, pipeline.SaleChange{AddStock: 7})
			r.adjust(once, once.Partitions[0])
			r.change(sale.ID, pipeline.SaleChange{AddStock: 4})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{NoSale: true})
			sale := usualSale(pipeline.Sale{Partitions: spread})
			if err := r.store.CreateSale(r.ctx(), sale); err != nil {
				t.Fatal(err)
			}
			begin(r, sale)
			if err := r.mend(); err != nil {
				t.Fatal(err)
			}
			r.wantPublished(sale.ID, nil)
			mended := r.dump(sale)
			if err := r.mend(); err != nil {
				t.Fatal(err)
			}
			if again := r.dump(sale); again != mended {
				t.Errorf("a second run changed\n%s to\n%s", mended, again)
			}
		})
	}
}

func (r *rig) load(sale *pipeline.Sale, partitions []pipeline.Partition) {
	r.Helper()
	for _, p := range partitions {
		fields := saleFields(sale, p)
		if loaded, err := lua.Load(r.ctx(), r.rdb, r.keys.Sale(p, sale.ID), r.keys.Trusted(p), fields); err != nil || loaded != lua.LoadLoaded {
			r.Fatalf("load: %s, %v", loaded, err)
		}
	}
}

func (r *rig) adjust(sale *pipeline.Sale, p pipeline.Partition) {
	r.Helper()
	adjusted, _, err := lua.Adjust(r.ctx(), r.rdb, r.releaseKeys(p, sale.ID), sale.ID, 1000, saleFields(sale, p))
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

func (r *rig) publish(sale *pipeline.Sale) {
	r.Helper()
	if err := r.publisher.Publish(r.ctx(), sale); err != nil {
		r.Fatal(err)
	}
}

// change changes a sale in Postgres only.
func (r *rig) change(id string, change pipeline.SaleChange) *pipeline.Sale {
	r.Helper()
	sale, err := r.store.ChangeSale(r.ctx(), id, "test", change)
	if err != nil {
		r.Fatal(err)
	}
	return sale
}

// Orders came in before the publisher's last step was made up for: they keep what they took.
func TestTheJobTakesNothingBackFromBuyers(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{NoSale: true})
	sale := usualSale(pipeline.Sale{Partitions: []pipeline.Partition{1}})
	if err := r.store.CreateSale(r.ctx(), sale); err != nil {
		t.Fatal(err)
	}
	r.load(sale, sale.Partitions)
	r.sale = sale
	r.admit("ann", 3)
	if err := r.mend(); err != nil {
		t.Fatal(err)
	}
	r.wantPublished(sale.ID, map[pipeline.Partition]int64{1: 3})
	r.change(sale.ID, pipeline.SaleChange{AddStock: 10})
	r.admit("bob", 4)
	if err := r.mend(); err != nil {
		t.Fatal(err)
	}
	r.wantPublished(sale.ID, map[pipeline.Partition]int64{1: 7})
}

func TestASaleIsCreatedAndChangedWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{NoSale: true})
	proxy := through(t, redisURL(r))
	publisher := pipeline.NewPublisher(testkit.Client(t, proxy.URL()), r.keys, r.store, 4, r.log)
	proxy.Cut()
	sale := usualSale(pipeline.Sale{})
	wantKind(t, publisher.Create(r.ctx(), sale), pipeline.KindUnavailable)
	wantKind(t, publisher.Job(r.catalogue()).Run(r.ctx()), pipeline.KindUnavailable)
	proxy.Heal()
	if err := publisher.Job(r.catalogue()).Run(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.wantPublished(sale.ID, nil)

	proxy.DropReplyTo("eval", 1) // done, but nobody hears of it
	changed, err := publisher.Change(r.ctx(), sale.ID, "test", pipeline.SaleChange{AddStock: 5})
	wantKind(t, err, pipeline.KindUnavailable)
	if proxy.Lost() != 1 || changed.Total != 105 {
		t.Errorf("lost %d replies, the sale is %+v", proxy.Lost(), changed)
	}
	if err := publisher.Job(r.catalogue()).Run(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.wantPublished(sale.ID, nil)
}

func TestASaleThatRedisLostIsNotSoldAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.admit("ann", 3)
	r.lose(r.sale)
	wantKind(t, r.publisher.Publish(r.ctx(), r.sale), pipeline.KindNotLoaded)
	wantKind(t, r.mend(), pipeline.KindNotLoaded)
	_, err := r.publisher.Change(r.ctx(), r.sale.ID, "test", pipeline.SaleChange{AddStock: 5})
	wantKind(t, err, pipeline.KindNotLoaded)
	wantKind(t, r.mend(), pipeline.KindNotLoaded)
	if hash := r.saleHash(r.sale.Partitions[0], r.sale.ID); len(hash) != 0 {
		t.Errorf("Redis holds %v, want nothing until a rebuild", hash)
	}
}

// A worker's catalogue can be behind: by a second, or by as long as Postgres is away. What it does not know of yet, that the
// sale was loaded and sold from, must not let it load the sale once more.
func TestAStaleCatalogueDoesNotSellASaleAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{NoSale: true})
	proxy := through(t, withoutTLS(t, r.opts.DatabaseURL))
	publisher := pipeline.NewPublisher(r.rdb, r.keys, r.openStore(proxy.URL()), 4, r.log)
	sale := usualSale(pipeline.Sale{Partitions: []pipeline.Partition{1}})
	if err := r.store.CreateSale(r.ctx(), sale); err != nil {
		t.Fatal(err)
	}
	stale := r.catalogue()
	r.publish(sale)
	r.sale = sale
	r.admit("ann", 3)
	r.lose(sale)
	job := publisher.Job(stale)
	wantKind(t, job.Run(r.ctx()), pipeline.KindNotLoaded)
	proxy.Cut()
	wantKind(t, job.Run(r.ctx()), pipeline.KindUnavailable)
	if hash := r.saleHash(1, sale.ID); len(hash) != 0 {
		t.Errorf("Redis holds %v, want nothing until a rebuild", hash)
	}
}

// The publisher died before it could mark the sale as loaded, and then Redis lost the sale. The orders tell.
func TestASaleWithOrdersIsNotLoadedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{NoSale: true})
	sale := usualSale(pipeline.Sale{Partitions: []pipeline.Partition{1}})
	if err := r.store.CreateSale(r.ctx(), sale); err != nil {
		t.Fatal(err)
	}
	r.load(sale, sale.Partitions)
	r.sale = sale
	r.admit("ann", 3)
	r.persist(r.events(sale)...)
	r.lose(sale)
	wantKind(t, r.mend(), pipeline.KindNotLoaded)
	if hash := r.saleHash(1, sale.ID); len(hash) != 0 {
		t.Errorf("Redis holds %v, want nothing until a rebuild", hash)
	}
}

func TestOneLostSaleHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{ID: "a-lost"}})
	r.lose(r.sale)
	behind := usualSale(pipeline.Sale{ID: "z-behind", Partitions: []pipeline.Partition{0}})
	if err := r.store.CreateSale(r.ctx(), behind); err != nil {
		t.Fatal(err)
	}
	err := r.mend()
	wantKind(t, err, pipeline.KindNotLoaded)
	if !strings.Contains(err.Error(), "a-lost") {
		t.Errorf("the error does not name the sale: %v", err)
	}
	r.wantPublished("z-behind", nil)
}

func TestPublishersAtTheSameTime(t *testing.T) {
	t.Parallel()
	const publishers = 8
	r := newRig(t, rigOptions{NoSale: true, Partitions: 4})
	var created atomic.Int32
	together(publishers, func(i int) {
		sale := usualSale(pipeline.Sale{Total: int64(1000 + i)})
		switch err := r.publisher.Create(r.ctx(), sale); pipeline.KindOf(err) {
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
	r.sale = r.stored("drop-1")
	total := r.sale.Total

	// Restocks, jobs with catalogues of all ages, and buyers, all at once.
	stale := r.catalogue()
	var taken atomic.Int64
	together(publishers, func(i int) {
		for n := range 4 {
			if err := r.restock(i*10 + n + 1); err != nil {
				t.Errorf("restock: %v", err)
			}
			if err := r.publisher.Job(stale).Run(r.ctx()); err != nil {
				t.Errorf("job: %v", err)
			}
			decision, err := r.try(pipeline.OrderRequest{UserID: fmt.Sprintf("buyer-%d-%d", i, n), Quantity: 2})
			if err != nil || decision.Result != pipeline.AdmissionAccepted {
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
	if err := r.mend(); err != nil {
		t.Fatal(err)
	}
	if got := r.stored("drop-1").Total; got != total {
		t.Errorf("got a total of %d, want %d", got, total)
	}
	r.wantPublished("drop-1", map[pipeline.Partition]int64{r.sale.Partitions[0]: taken.Load()})
}

// restock adds units, again when other operators got in the way.
func (r *rig) restock(units int) error {
	for {
		_, err := r.publisher.Change(r.ctx(), "drop-1", "test", pipeline.SaleChange{AddStock: int64(units)})
		if pipeline.KindOf(err) != pipeline.KindConflict {
			return err
		}
	}
}

func TestAChangeThatArrivesLateChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	paused := pipeline.SalePaused
	late := r.change(r.sale.ID, pipeline.SaleChange{AddStock: 5})
	newer := r.change(r.sale.ID, pipeline.SaleChange{State: &paused})
	r.publish(newer)
	r.publish(late)
	r.wantPublished(r.sale.ID, nil)
}

func TestChangesThatAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	before := r.dump(r.sale)
	closed, active := pipeline.SaleClosed, pipeline.SaleActive
	early := r.sale.OpensAt.Add(-time.Second)
	for _, test := range []struct {
		id     string
		change pipeline.SaleChange
		want   pipeline.Kind
	}{
		{r.sale.ID, pipeline.SaleChange{AddStock: -1}, pipeline.KindInvalid},
		{r.sale.ID, pipeline.SaleChange{AddStock: pipeline.MaxStock}, pipeline.KindInvalid},
		{r.sale.ID, pipeline.SaleChange{ClosesAt: &early}, pipeline.KindInvalid},
		{"nowhere", pipeline.SaleChange{AddStock: 1}, pipeline.KindNotFound},
	} {
		_, err := r.publisher.Change(r.ctx(), test.id, "test", test.change)
		wantKind(t, err, test.want)
	}
	if after := r.dump(r.sale); after != before || r.stored(r.sale.ID).Version != 1 {
		t.Errorf("a refused change changed\n%s to\n%s", before, after)
	}
	if _, err := r.publisher.Change(r.ctx(), r.sale.ID, "test", pipeline.SaleChange{State: &closed}); err != nil {
		t.Fatal(err)
	}
	_, err := r.publisher.Change(r.ctx(), r.sale.ID, "test", pipeline.SaleChange{State: &active})
	wantKind(t, err, pipeline.KindConflict)
	r.wantPublished(r.sale.ID, nil)
}

func TestTheJobEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	ctx, cancel := context.WithCancel(r.ctx())
	cancel()
	if err := r.publisher.Job(r.catalogue()).Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's end", err)
	}
}
