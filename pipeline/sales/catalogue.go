package sales

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"sluice/pipeline"
)

const (
	catalogueReread    = time.Minute      // all is read again this often: Postgres' clock may have been set back
	catalogueRefresh   = time.Second      // how old a sale's definition may be; Redis decides by its own, newer one
	catalogueOverlap   = 10 * time.Second // re-read this far back: a transaction may commit after a younger one
	cataloguePage      = 1000             // sales per query
	catalogueTimeout   = 2 * time.Second  // one query
	unknownSaleTTL     = time.Second      // how long "no such sale" is believed
	unknownSaleLimit   = 10_000           // unknown ids remembered, so that guessing ids costs no memory
	listedAfterClosing = 24 * time.Hour   // how long a closed sale is listed
)

// PriceLead is for how long the old price of a sale is still asked after it was changed: several times as long as a
// change takes to reach the catalogue of every process.
const PriceLead = 5 * time.Second

// pricesKnown is for how long a process knows all prices after it began to read what has changed. A statement that
// changes one has the rest of PriceLead until it is visible.
const pricesKnown = PriceLead - time.Second

// CatalogueLookups is how many look-ups of unknown ids may be under way at once, so that guessing costs no pool.
const CatalogueLookups = 8

// CatalogueLimit is how many sales a Catalogue keeps in memory, some 5 MB.
const CatalogueLimit = 10_000

// Source is where sales are defined.
type Source interface {
	Sale(ctx context.Context, id string) (*pipeline.Sale, error)
	Sales(ctx context.Context, filter pipeline.SalesFilter) ([]*pipeline.Sale, error)
}

// Catalogue is a process' memory of all sales. It answers while Postgres is away, and is at most catalogueRefresh
// behind it otherwise. The *Sale it returns are shared: never change one.
type Catalogue struct {
	source  Source
	log     *slog.Logger
	lookups singleflight.Group
	slots   chan struct{}

	mu      sync.RWMutex // protects those below
	sales   map[string]*pipeline.Sale
	unknown map[string]time.Time // id → when the answer stops counting
	newest  time.Time            // UpdatedAt of the newest sale read
	current time.Time            // when the last reading began that read all that had changed
}

// NewCatalogue returns an empty Catalogue; Load fills it and Run keeps it fresh.
func NewCatalogue(source Source, log *slog.Logger) *Catalogue {
	return &Catalogue{
		source: source, log: log, slots: make(chan struct{}, CatalogueLookups),
		sales: map[string]*pipeline.Sale{}, unknown: map[string]time.Time{},
	}
}

// Load reads every sale once, at most CatalogueLimit.
func (c *Catalogue) Load(ctx context.Context) error { return c.read(ctx, time.Time{}) }

// Run re-reads what changed, until the context ends. An error is logged once, and what is in memory is kept.
func (c *Catalogue) Run(ctx context.Context) {
	tick := time.NewTicker(catalogueRefresh)
	defer tick.Stop()
	failing, whole := false, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		since := c.since()
		if time.Since(whole) >= catalogueReread {
			since, whole = time.Time{}, time.Now()
		}
		err := c.read(ctx, since)
		if err != nil && !failing && ctx.Err() == nil {
			c.log.Warn("sales are not refreshed; those in memory are used", "error", err)
		}
		failing = err != nil
	}
}

// since is how far back changes must be read to miss none.
func (c *Catalogue) since() time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.newest.IsZero() {
		return time.Time{}
	}
	return c.newest.Add(-catalogueOverlap)
}

func (c *Catalogue) read(ctx context.Context, since time.Time) error {
	began, after := time.Now(), ""
	for range CatalogueLimit / cataloguePage {
		page, err := c.page(ctx, pipeline.SalesFilter{UpdatedSince: since, After: after, Limit: cataloguePage})
		if err != nil {
			return err
		}
		c.keep(page)
		if len(page) < cataloguePage {
			c.mu.Lock()
			c.current = began
			c.mu.Unlock()
			return nil
		}
		after = page[len(page)-1].ID
	}
	return nil
}

func (c *Catalogue) page(ctx context.Context, filter pipeline.SalesFilter) ([]*pipeline.Sale, error) {
	ctx, cancel := context.WithTimeout(ctx, catalogueTimeout)
	defer cancel()
	return c.source.Sales(ctx, filter)
}

func (c *Catalogue) keep(sales []*pipeline.Sale) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range sales {
		if old := c.sales[s.ID]; old != nil && old.Version > s.Version {
			continue
		}
		if len(c.sales) >= CatalogueLimit && c.sales[s.ID] == nil {
			c.forgetOne()
		}
		c.sales[s.ID] = s
		delete(c.unknown, s.ID)
		if s.UpdatedAt.After(c.newest) {
			c.newest = s.UpdatedAt
		}
	}
}

// forgetOne makes room by dropping some sale; a request for it reads it again.
func (c *Catalogue) forgetOne() {
	for id := range c.sales {
		delete(c.sales, id)
		return
	}
}

// Get returns a sale. What it costs from a moment on may not be known here, while Postgres can't be read: see
// pipeline.Sale.PricedUntil. Errors: KindNotFound, KindUnavailable.
func (c *Catalogue) Get(ctx context.Context, id string) (*pipeline.Sale, error) {
	sale, err := c.get(ctx, id)
	if err != nil || sale.UnitPrice == 0 {
		return sale, err
	}
	c.mu.RLock()
	known := c.current.Add(pricesKnown)
	c.mu.RUnlock()
	if time.Now().Before(known) {
		return sale, nil
	}
	stale := *sale
	stale.PricedUntil = known
	return &stale, nil
}

func (c *Catalogue) get(ctx context.Context, id string) (*pipeline.Sale, error) {
	if !pipeline.ValidSaleID(id) {
		return nil, pipeline.Errorf(
			pipeline.KindNotFound, "no sale has this id: ids are 1 to 64 characters of a-z, 0-9 and '-'",
		)
	}
	c.mu.RLock()
	sale, unknownUntil := c.sales[id], c.unknown[id]
	c.mu.RUnlock()
	switch {
	case sale != nil:
		return sale, nil
	case time.Now().Before(unknownUntil):
		return nil, unknownSale(id)
	}
	return c.lookUp(ctx, id)
}

// Partitions returns those of the sales in memory that take orders, or will.
func (c *Catalogue) Partitions(now time.Time) map[pipeline.Partition]bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	partitions := map[pipeline.Partition]bool{}
	for _, sale := range c.sales {
		if sale.State == pipeline.SaleClosed || !now.Before(sale.ClosesAt) {
			continue
		}
		for _, p := range sale.Partitions {
			partitions[p] = true
		}
	}
	return partitions
}

func unknownSale(id string) error {
	return pipeline.Errorf(pipeline.KindNotFound, "no sale has the id %q", id)
}

func (c *Catalogue) lookUp(ctx context.Context, id string) (*pipeline.Sale, error) {
	found := c.lookups.DoChan(id, func() (any, error) {
		select {
		case c.slots <- struct{}{}:
		default:
			return nil, pipeline.Errorf(pipeline.KindOverloaded, "too many look-ups of unknown sales")
		}
		defer func() { <-c.slots }()
		// Detached: the answer serves everybody who asks for this id now, not only the first.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), catalogueTimeout)
		defer cancel()
		sale, err := c.source.Sale(ctx, id)
		if pipeline.KindOf(err) == pipeline.KindNotFound {
			c.remember(id)
			return nil, unknownSale(id)
		}
		if err != nil {
			return nil, err
		}
		c.keep([]*pipeline.Sale{sale})
		return sale, nil
	})
	select {
	case r := <-found:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*pipeline.Sale), nil
	case <-ctx.Done():
		return nil, pipeline.Wrap(pipeline.KindUnavailable, ctx.Err(), "the sale could not be looked up in time")
	}
}

func (c *Catalogue) remember(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.unknown) >= unknownSaleLimit {
		clear(c.unknown)
	}
	c.unknown[id] = time.Now().Add(unknownSaleTTL)
}

// List returns up to limit sales in the order in which they open, those that are over last, and without those that
// ended more than a day ago.
func (c *Catalogue) List(now time.Time, limit int) []*pipeline.Sale {
	c.mu.RLock()
	var listed []*pipeline.Sale
	for _, s := range c.sales {
		if now.Sub(s.ClosesAt) < listedAfterClosing {
			listed = append(listed, s)
		}
	}
	c.mu.RUnlock()
	slices.SortFunc(listed, func(a, b *pipeline.Sale) int {
		return cmp.Or(cmp.Compare(isOver(a, now), isOver(b, now)), a.OpensAt.Compare(b.OpensAt), cmp.Compare(a.ID, b.ID))
	})
	return listed[:min(limit, len(listed))]
}

// isOver is 1 for a sale that is over and 0 for any other, so that it sorts.
func isOver(s *pipeline.Sale, now time.Time) int {
	if s.Phase(now) == "closed" {
		return 1
	}
	return 0
}
