package overview

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/retry"
)

const (
	// glanceAge is how long a glance is shown to everybody who asks: whoever watches, the stores are asked twice a second.
	glanceAge = 500 * time.Millisecond
	// glanceTimeout bounds one look at both stores.
	glanceTimeout = 3 * time.Second
	// settingsEvery is how often the settings of Redis and the trust in it are read.
	settingsEvery = 2 * time.Second
	// rateOver is the shortest time over which rates are taken; shorter ones jump.
	rateOver = 900 * time.Millisecond
	// MaxGlanced is how many sales a glance looks at: some 10 ms of Redis, in one round trip.
	MaxGlanced = 1000
	// driftEvery is how often the units of the sales that are not over are checked while somebody looks, and driftSales
	// how many of them.
	driftEvery, driftSales = 5 * time.Second, 50
)

// Catalogue knows the sales.
type Catalogue interface {
	List(now time.Time, limit int) []*pipeline.Sale
}

// Config is what a Reader works with.
type Config struct {
	Redis      redis.UniversalClient
	Keys       pipeline.Keys
	Partitions int // of the installation
	Store      Store
	Sales      Catalogue
	Durability pipeline.Durability // what receipts are to promise
}

// Reader looks at an installation. Any number may look at once; they share what was read a moment ago.
type Reader struct {
	Config
	balancer *audit.Balancer
	auditor  *audit.Auditor
	units    unitsMemory

	mu       sync.Mutex // protects the rest; held during a look, so that those who wait share it
	last     *Glance
	lastRead time.Time
	settings settings
	rates    rates
	drift    map[string]audit.Drift
	drifted  time.Time
}

// NewReader returns a Reader that has not looked yet.
func NewReader(c Config) *Reader {
	auditor := audit.NewAuditor(c.Redis, c.Keys, c.Store)
	return &Reader{
		Config: c, auditor: auditor, balancer: audit.NewBalancer(c.Redis, c.Keys, c.Store, auditor),
		units: unitsMemory{known: map[string]*unitsOfSale{}},
	}
}

// Glance is an installation at one look. Where a store did not answer, its error is set, and what it would have said is
// zero.
type Glance struct {
	At       time.Time // by Redis' clock, or this machine's without it
	Redis    error
	Postgres error

	Streams []Stream // by partition
	Workers []Worker // by name
	Trusted []bool   // by partition: whether buyers are admitted there
	// Obstacle says why Redis' settings don't keep what receipts promise; nil: they do.
	Obstacle error
	Features redisstore.Features

	Sales  []SaleGlance // as a Catalogue lists them, MaxGlanced at most
	Duties Duties
	// Accepted and Stored are orders per second of the sales listed, -1 until two looks have been made.
	Accepted, Stored float64
}

// SaleGlance is a sale, and what Redis has of it.
type SaleGlance struct {
	Sale     *pipeline.Sale
	Loaded   bool // else the numbers of Redis are not known
	Free     int64
	Accepted int64 // accepts so far
	Waiting  int64 // entries on the waitlist
	Drift    audit.Drift
	Checked  bool // whether Drift was looked at
}

// Lag is the number of orders that no worker has got yet, Pending of those that one has, and Oldest when the oldest of
// both was accepted; zero: there is none.
func (g *Glance) Lag() (lag, pending int64, oldest time.Time) {
	for i := range g.Streams {
		s := &g.Streams[i]
		lag += max(0, s.Length-s.Pending)
		pending += s.Pending
		if !s.Oldest.IsZero() && (oldest.IsZero() || s.Oldest.Before(oldest)) {
			oldest = s.Oldest
		}
	}
	return lag, pending, oldest
}

// Glance looks, or returns what was seen less than half a second ago. The result is shared: never change it.
func (r *Reader) Glance(ctx context.Context) *Glance {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != nil && time.Since(r.lastRead) < glanceAge {
		return r.last
	}
	// For all that wait, whatever becomes of the first.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), glanceTimeout)
	defer cancel()
	g := &Glance{At: time.Now().UTC(), Accepted: -1, Stored: -1}
	var both sync.WaitGroup
	both.Go(func() { g.Duties, g.Postgres = r.Store.Duties(ctx) })
	if g.Redis = r.readStreams(ctx, g); g.Redis == nil {
		g.Redis = r.readSettings(ctx, g)
	}
	r.readSales(ctx, g)
	both.Wait()
	r.checkDrift(ctx, g)
	if g.Redis == nil {
		g.Accepted, g.Stored = r.rates.note(g)
	}
	r.last, r.lastRead = g, time.Now()
	return g
}

// settings are what is read of Redis more rarely.
type settings struct {
	at       time.Time
	trusted  []bool
	features redisstore.Features
	obstacle error
}

func (r *Reader) readSettings(ctx context.Context, g *Glance) error {
	if time.Since(r.settings.at) > settingsEvery {
		found := settings{at: time.Now(), trusted: make([]bool, r.Partitions)}
		for p := range pipeline.Partition(r.Partitions) {
			seen, err := lua.ReadTrust(ctx, r.Redis, r.Keys.ForVerify(p, ""))
			if err != nil {
				return unavailable(err)
			}
			found.trusted[p] = seen.Trust == lua.Trusted
		}
		var err error
		if found.features, err = redisstore.Probe(ctx, r.Redis); err != nil {
			return err
		}
		found.obstacle = found.features.Require(r.Durability)
		r.settings = found
	}
	g.Trusted, g.Features, g.Obstacle = r.settings.trusted, r.settings.features, r.settings.obstacle
	return nil
}

// readSales reads what Redis has of the sales in one round trip.
func (r *Reader) readSales(ctx context.Context, g *Glance) {
	for _, sale := range r.Sales.List(g.At, MaxGlanced) {
		g.Sales = append(g.Sales, SaleGlance{Sale: sale})
	}
	if g.Redis != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	pipe := r.Redis.Pipeline()
	read := make([][]*redis.SliceCmd, len(g.Sales))
	for i := range g.Sales {
		for _, p := range g.Sales[i].Sale.Partitions {
			key := r.Keys.Sale(p, g.Sales[i].Sale.ID)
			read[i] = append(read[i], pipe.HMGet(ctx, key, "stock", "accepted", "waiting"))
		}
	}
	if len(read) == 0 {
		return
	}
	if _, err := retry.Exec(ctx, pipe); err != nil {
		g.Redis = unavailable(err)
		return
	}
	for i := range g.Sales {
		g.Sales[i].add(read[i])
	}
}

func (s *SaleGlance) add(read []*redis.SliceCmd) {
	s.Loaded = true
	for _, share := range read {
		var of struct {
			Stock    int64 `redis:"stock"`
			Accepted int64 `redis:"accepted"`
			Waiting  int64 `redis:"waiting"`
		}
		values := share.Val()
		if share.Err() != nil || len(values) == 0 || values[0] == nil || share.Scan(&of) != nil {
			s.Loaded = false
			continue
		}
		s.Free, s.Accepted, s.Waiting = s.Free+of.Stock, s.Accepted+of.Accepted, s.Waiting+of.Waiting
	}
}

// checkDrift checks the units of the sales that are not over, now and then.
func (r *Reader) checkDrift(ctx context.Context, g *Glance) {
	if g.Redis == nil && g.Postgres == nil && time.Since(r.drifted) > driftEvery {
		r.drift, r.drifted = r.checkUnits(ctx, g), time.Now()
	}
	for i := range g.Sales {
		s := &g.Sales[i]
		s.Drift, s.Checked = r.drift[s.Sale.ID]
	}
}

func (r *Reader) checkUnits(ctx context.Context, g *Glance) map[string]audit.Drift {
	found := map[string]audit.Drift{}
	before, partitions := map[*pipeline.Sale]audit.PartitionCounters{}, map[pipeline.Partition]bool{}
	for i := range g.Sales {
		sale := g.Sales[i].Sale
		if len(before) >= driftSales || !g.Sales[i].Loaded || sale.Phase(g.At) == "closed" {
			continue
		}
		if counters, err := r.auditor.Counters(ctx, sale); err == nil {
			before[sale] = counters
			for _, p := range sale.Partitions {
				partitions[p] = true
			}
		}
	}
	backlog, err := r.balancer.ReadBacklog(ctx, keysOf(partitions))
	if err != nil {
		return found
	}
	for sale, counters := range before {
		if drift, err := r.balancer.Check(ctx, sale, counters, backlog); err == nil {
			found[sale.ID] = drift
		}
	}
	return found
}

func keysOf(set map[pipeline.Partition]bool) []pipeline.Partition {
	list := make([]pipeline.Partition, 0, len(set))
	for p := range set {
		list = append(list, p)
	}
	return list
}
