package sales_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/db"
	"sluice/internal/faultnet"
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/sales"
)

// catalogueRig is a rig without a sale whose catalogue reaches Postgres through a bad network.
type catalogueRig struct {
	*pipelinetest.Rig
	proxy     *faultnet.Proxy
	catalogue *sales.Catalogue
}

func newCatalogueRig(t *testing.T) *catalogueRig {
	t.Helper()
	r := pipelinetest.New(t, pipelinetest.Options{NoSale: true})
	proxy := pipelinetest.Through(t, pipelinetest.WithoutTLS(t, r.Options.DatabaseURL))
	return &catalogueRig{r, proxy, sales.NewCatalogue(r.OpenStore(proxy.URL()), r.Logger)}
}

// run keeps the catalogue fresh until the test ends.
func (r *catalogueRig) run() { r.Background(r.catalogue.Run) }

// refreshLimit is how long the catalogue may take to notice a change: its second, and much more for a busy machine.
const refreshLimit = pipelinetest.CallLimit

func TestTheCatalogueKnowsEverySale(t *testing.T) {
	t.Parallel()
	r := newCatalogueRig(t)
	want := r.CreateSale(pipeline.Sale{ID: "drop-1"})
	if err := r.catalogue.Load(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	r.proxy.Cut() // from here on it is memory
	got, err := r.catalogue.Get(r.Ctx(), "drop-1")
	if err != nil || fmt.Sprintf("%+v", *got) != fmt.Sprintf("%+v", *want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, id := range []string{"", "Drop", "drop 1", "{p01}", "a\x00", strings.Repeat("a", 65)} {
		_, err := r.catalogue.Get(r.Ctx(), id)
		pipelinetest.WantKind(t, err, pipeline.KindNotFound) // no sale has such an id: nobody needs to be asked
	}
	_, err = r.catalogue.Get(r.Ctx(), "drop-2")
	pipelinetest.WantKind(t, err, pipeline.KindUnavailable) // there may be one
}

func TestASaleIsFoundBeforeTheCatalogueIsRefreshed(t *testing.T) {
	t.Parallel()
	r := newCatalogueRig(t)
	r.CreateSale(pipeline.Sale{ID: "drop-1"})
	for range 2 {
		if sale, err := r.catalogue.Get(r.Ctx(), "drop-1"); err != nil || sale.ID != "drop-1" {
			t.Fatalf("got %v, %v", sale, err)
		}
		r.proxy.Cut() // the second time it is known
	}
}

func TestAnUnknownSaleIsRememberedForAMoment(t *testing.T) {
	t.Parallel()
	r := newCatalogueRig(t)
	_, err := r.catalogue.Get(r.Ctx(), "drop-1")
	asked := time.Now()
	pipelinetest.WantKind(t, err, pipeline.KindNotFound)
	r.proxy.Cut()
	_, err = r.catalogue.Get(r.Ctx(), "drop-1")
	if time.Since(asked) < time.Second/2 {
		pipelinetest.WantKind(t, err, pipeline.KindNotFound)
	}
	r.proxy.Heal()
	r.CreateSale(pipeline.Sale{ID: "drop-1"})
	testkit.Eventually(t, refreshLimit, "the sale to be found", func() bool {
		_, err := r.catalogue.Get(r.Ctx(), "drop-1")
		return err == nil
	})
}

func TestTheCatalogueFollowsChanges(t *testing.T) {
	t.Parallel()
	r := newCatalogueRig(t)
	r.CreateSale(pipeline.Sale{ID: "old"})
	if err := r.catalogue.Load(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	r.run()
	if _, err := r.catalogue.Get(r.Ctx(), "new"); pipeline.KindOf(err) != pipeline.KindNotFound {
		t.Fatal(err)
	}
	began := time.Now()
	paused := pipeline.SalePaused
	if _, err := r.Publisher.Change(r.Ctx(), "old", "test", pipeline.SaleChange{State: &paused, AddStock: 5}); err != nil {
		t.Fatal(err)
	}
	r.CreateSale(pipeline.Sale{ID: "new"})
	testkit.Eventually(t, refreshLimit, "the change and the new sale", func() bool {
		old, err := r.catalogue.Get(r.Ctx(), "old")
		return err == nil && old.State == paused && old.Total == 105 && old.Version == 2 &&
			len(r.catalogue.List(time.Now(), 10)) == 2
	})
	t.Logf("known after %s", time.Since(began))
}

// slowStore reads a sale, and returns it only when it is let go.
type slowStore struct {
	*db.Store
	read, letGo chan struct{}
}

func (s *slowStore) Sale(ctx context.Context, id string) (*pipeline.Sale, error) {
	sale, err := s.Store.Sale(ctx, id)
	close(s.read)
	<-s.letGo
	return sale, err
}

func TestAnAnswerThatArrivesLateDoesNotHideANewerOne(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	slow := &slowStore{r.Store, make(chan struct{}), make(chan struct{})}
	catalogue := sales.NewCatalogue(slow, r.Logger)
	late := make(chan error, 1)
	go func() {
		_, err := catalogue.Get(r.Ctx(), r.Sale.ID)
		late <- err
	}()
	<-slow.read
	change(r, r.Sale.ID, pipeline.SaleChange{AddStock: 5})
	if err := catalogue.Load(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	close(slow.letGo)
	if err := <-late; err != nil {
		t.Fatal(err)
	}
	if sale, err := catalogue.Get(r.Ctx(), r.Sale.ID); err != nil || sale.Version != 2 {
		t.Errorf("got %+v, %v, want version 2", sale, err)
	}
}

func TestTheCatalogueAnswersWhilePostgresIsAway(t *testing.T) {
	t.Parallel()
	server := testkit.PrivatePostgres(t)
	r := pipelinetest.New(t, pipelinetest.Options{DatabaseURL: server.URL()})
	c := &catalogueRig{r, nil, sales.NewCatalogue(r.OpenStore(server.URL()), r.Logger)}
	if err := c.catalogue.Load(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	c.run()
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	away := time.Now()
	testkit.Eventually(t, refreshLimit, "a refresh to fail", func() bool {
		return time.Since(away) > 1200*time.Millisecond
	})
	if sale, err := c.catalogue.Get(r.Ctx(), r.Sale.ID); err != nil || sale.ID != r.Sale.ID {
		t.Errorf("a known sale: got %v, %v", sale, err)
	}
	if listed := c.catalogue.List(time.Now(), 10); len(listed) != 1 {
		t.Errorf("listed %d sales, want 1", len(listed))
	}
	_, err := c.catalogue.Get(r.Ctx(), "other")
	pipelinetest.WantKind(t, err, pipeline.KindUnavailable)
	if err := server.Restart(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	closed := pipeline.SaleClosed
	testkit.Eventually(t, pipelinetest.CallLimit, "Postgres to take a change again", func() bool {
		_, err := r.Store.ChangeSale(r.Ctx(), r.Sale.ID, "test", pipeline.SaleChange{State: &closed})
		return err == nil
	})
	testkit.Eventually(t, pipelinetest.CallLimit, "the catalogue to follow again", func() bool {
		sale, err := c.catalogue.Get(r.Ctx(), r.Sale.ID)
		return err == nil && sale.State == closed
	})
}

func TestGuessingIDsCostsFewLookUps(t *testing.T) {
	t.Parallel()
	r := newCatalogueRig(t)
	if _, err := r.catalogue.Get(r.Ctx(), "warm-up"); pipeline.KindOf(err) != pipeline.KindNotFound {
		t.Fatal(err)
	}
	r.proxy.Freeze()
	frozen := time.Now()
	type answer struct {
		id  string
		err error
	}
	answers := make(chan answer, 100)
	get := func(ctx context.Context, id string) {
		_, err := r.catalogue.Get(ctx, id)
		answers <- answer{id, err}
	}
	for i := range sales.CatalogueLookups {
		for range 3 { // buyers of one sale share a look-up
			go get(r.Ctx(), fmt.Sprintf("drop-%d", i))
		}
	}
	testkit.Eventually(t, pipelinetest.CallLimit, "all look-ups to be under way", func() bool {
		return r.catalogue.LookingUp() == sales.CatalogueLookups
	})
	_, err := r.catalogue.Get(r.Ctx(), "one-too-many")
	pipelinetest.WantKind(t, err, pipeline.KindOverloaded)
	leaving, leave := context.WithCancel(context.Background())
	leave()
	_, err = r.catalogue.Get(leaving, "drop-0")
	pipelinetest.WantKind(t, err, pipeline.KindUnavailable)
	r.proxy.Thaw()
	for range 3 * sales.CatalogueLookups {
		a := <-answers
		late := pipeline.KindOf(a.err) == pipeline.KindUnavailable &&
			time.Since(frozen) > time.Second // a query has two seconds
		if pipeline.KindOf(a.err) != pipeline.KindNotFound && !late {
			t.Errorf("%s: got %v, want it not found", a.id, a.err)
		}
	}
	testkit.Eventually(t, pipelinetest.CallLimit, "room for another look-up", func() bool {
		_, err = r.catalogue.Get(r.Ctx(), "one-too-many")
		return pipeline.KindOf(err) == pipeline.KindNotFound
	})
}

func TestAFrozenPostgresDelaysNobodyForLong(t *testing.T) {
	t.Parallel()
	r := newCatalogueRig(t)
	r.proxy.Freeze()
	ctx, cancel := context.WithTimeout(r.Ctx(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := r.catalogue.Get(ctx, "drop-1")
	pipelinetest.WantKind(t, err, pipeline.KindUnavailable)
	if took := time.Since(began); took > pipelinetest.CallLimit { // without a deadline it takes for ever
		t.Errorf("the answer took %s", took)
	}
}

func TestTheListOfSales(t *testing.T) {
	t.Parallel()
	r := newCatalogueRig(t)
	now := time.Now().Truncate(time.Second)
	for id, window := range map[string][2]time.Duration{
		"b-later": {time.Hour, 2 * time.Hour}, "c-now": {-time.Hour, time.Hour}, "a-now": {-time.Hour, time.Hour},
		"gone": {-48 * time.Hour, -24 * time.Hour}, "just-over": {-48 * time.Hour, -24*time.Hour + time.Minute},
	} {
		r.CreateSale(pipeline.Sale{ID: id, OpensAt: now.Add(window[0]), ClosesAt: now.Add(window[1])})
	}
	if err := r.catalogue.Load(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	list := func(limit int) (ids []string) {
		for _, sale := range r.catalogue.List(now, limit) {
			ids = append(ids, sale.ID)
		}
		return ids
	}
	want := []string{"a-now", "c-now", "b-later", "just-over"} // what is over comes last
	if got := list(10); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := list(2); !slices.Equal(got, want[:2]) {
		t.Errorf("got %v, want %v", got, want[:2])
	}
	if sale, err := r.catalogue.Get(r.Ctx(), "gone"); err != nil || sale.ID != "gone" {
		t.Errorf("a sale that is not listed any more: got %v, %v", sale, err)
	}
}

func TestTheCatalogueIsBounded(t *testing.T) {
	t.Parallel()
	r := newCatalogueRig(t)
	const extra = 50
	r.Exec(sales.CatalogueLimit+extra, `
		insert into sales (id, title, total, max_quantity, opens_at, closes_at, payment_window, state, partitions)
		select 'drop-' || i, 'A thing', 1, 1, now(), now() + interval '1 hour', interval '0', 'active', '{0}'
		from generate_series(1, $1::int) i`, sales.CatalogueLimit+extra)
	if err := r.catalogue.Load(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * extra { // whichever are not in memory are looked up
		if _, err := r.catalogue.Get(r.Ctx(), fmt.Sprintf("drop-%d", sales.CatalogueLimit+extra-i)); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(r.catalogue.List(time.Now(), 2*sales.CatalogueLimit)); got != sales.CatalogueLimit {
		t.Errorf("got %d sales in memory, want %d", got, sales.CatalogueLimit)
	}
}
