package notification

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/retry"
)

const (
	hubLimit      = 50_000          // watches at once in a process: some 50 MB beside their connections
	hubPerOrder   = 16              // of them for one order: its buyer's tabs and devices
	hubBatch      = 500             // orders per query: some milliseconds, so that a fresh change need not wait long
	hubSweepShare = hubBatch / 5    // of them kept for the sweep when more changed than fits
	hubSweep      = 3 * time.Second // how late a change is delivered at most whose message was lost, with both stores well
	hubTimeout    = 2 * time.Second // one query
)

// HubSource is where changed orders are read.
type HubSource interface {
	OrdersByID(ctx context.Context, keys []pipeline.OrderKey) ([]pipeline.Order, error)
}

// Hub delivers an order's changes of status to everybody in this process who watches it. It needs one connection to
// Redis, however many watch: messages say which orders changed, and of those that somebody watches it asks Postgres how
// they are, many in one query. What Postgres says is delivered, never what a message says.
//
// Messages may be lost: each is published after the commit by a process that may die, to the subscribers that are
// connected then. So every watched order is read again every few seconds, and at once after each new subscription.
// While Postgres is away nothing is delivered, and everything is once it is back.
//
// A watcher gets every status that is the newest when it looks, not each that there was: of several changes between two
// looks it gets the last one. One that does not look delays nobody.
type Hub struct {
	HubConfig
	metrics hubMetrics
	wake    chan struct{} // one signal waits for the reader

	mu      sync.Mutex // protects the rest, and the watches' own fields
	watched map[pipeline.OrderKey][]*Watch
	count   int
	due     *dueQueue           // watched orders that changed, or that somebody began to watch
	sweep   []pipeline.OrderKey // to be read too, once there is room
	ended   bool
}

// HubConfig is what a Hub works with, and its bounds. Zero bounds get the defaults.
type HubConfig struct {
	Redis      redis.UniversalClient
	Keys       pipeline.Keys
	Partitions int // of the installation
	Orders     HubSource
	Limit      int                   // watches at once; default 50,000
	SweepEvery time.Duration         // default 3 s
	Registerer prometheus.Registerer // of the metrics; nil: nothing is exported
	Log        *slog.Logger
}

// NewHub returns a Hub; Run makes it work.
func NewHub(c HubConfig) *Hub {
	if c.Limit == 0 {
		c.Limit = hubLimit
	}
	if c.SweepEvery == 0 {
		c.SweepEvery = hubSweep
	}
	return &Hub{
		HubConfig: c, metrics: newHubMetrics(c.Registerer),
		wake: make(chan struct{}, 1), watched: map[pipeline.OrderKey][]*Watch{}, due: newDueQueue(),
	}
}

// Run listens and delivers until the context ends. Then every watch ends at once, and no new one begins.
func (h *Hub) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { h.listen(ctx) })
	running.Go(func() { h.read(ctx) })
	<-ctx.Done()
	h.end()
	running.Wait()
}

// read asks Postgres for what is due, batch after batch.
func (h *Hub) read(ctx context.Context) {
	sweeps := time.NewTicker(h.SweepEvery)
	defer sweeps.Stop()
	backoff := retry.NewBackoff()
	failing := false
	for ctx.Err() == nil {
		select { // also while there is always something due
		case <-sweeps.C:
			h.startSweep()
		default:
		}
		batch := h.next()
		if len(batch) == 0 {
			select {
			case <-ctx.Done():
			case <-h.wake:
			case <-sweeps.C:
				h.startSweep()
			}
			continue
		}
		err := h.deliver(ctx, batch)
		if err == nil {
			backoff.Reset()
			failing = false
			continue
		}
		h.putBack(batch)
		if !failing && ctx.Err() == nil {
			failing = true
			h.Log.Warn("changed orders can't be read; those who wait get them later", "error", err)
		}
		backoff.Wait(ctx)
	}
}

// next takes a batch out of what is due: changes first, then as much of the sweep as fits, and never without some of
// it.
func (h *Hub) next() []dueOrder {
	h.mu.Lock()
	defer h.mu.Unlock()
	batch := make([]dueOrder, 0, min(hubBatch, h.due.len()+len(h.sweep)))
	room := hubBatch - min(hubSweepShare, len(h.sweep))
	for h.due.len() > 0 && len(batch) < room {
		batch = append(batch, h.due.pop())
	}
	for len(h.sweep) > 0 && len(batch) < hubBatch {
		if key := h.sweep[0]; h.watched[key] != nil && !h.due.has(key) {
			batch = append(batch, dueOrder{key: key})
		}
		h.sweep = h.sweep[1:]
	}
	return batch
}

// putBack puts back what could not be read, in its order.
func (h *Hub) putBack(batch []dueOrder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range slices.Backward(batch) {
		if h.watched[d.key] != nil {
			h.due.pushFront(d)
		}
	}
}

// deliver reads a batch and offers each order to those who watch it.
func (h *Hub) deliver(ctx context.Context, batch []dueOrder) error {
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	keys := make([]pipeline.OrderKey, 0, len(batch))
	since := make(map[pipeline.OrderKey]time.Time, len(batch))
	for _, d := range batch {
		keys = append(keys, d.key)
		if since[d.key].IsZero() { // it may be there twice, for its change and for the sweep
			since[d.key] = d.since
		}
	}
	orders, err := h.Orders.OrdersByID(ctx, keys)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return nil // the channels are closed
	}
	for i := range orders {
		key := pipeline.OrderKey{SaleID: orders[i].SaleID, OrderID: orders[i].ID}
		delivered := false
		for _, w := range h.watched[key] {
			delivered = w.offer(&orders[i]) || delivered
		}
		if changedAt := since[key]; delivered && !changedAt.IsZero() {
			h.metrics.delay.Observe(time.Since(changedAt).Seconds())
		}
		delete(since, key)
	}
	h.hint(since)
	return nil
}

// hint tells those who watch orders that have no row, and that a message has named; the lock is held.
func (h *Hub) hint(rowless map[pipeline.OrderKey]time.Time) {
	for key, changedAt := range rowless {
		if changedAt.IsZero() {
			continue
		}
		for _, w := range h.watched[key] {
			w.hint()
		}
	}
}

// queueChanged makes due what a message names, as far as somebody watches it.
func (h *Hub) queueChanged(changed []Change) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range changed {
		key := pipeline.OrderKey{SaleID: c.SaleID, OrderID: c.OrderID}
		if h.watched[key] != nil {
			h.due.push(dueOrder{key, now})
		}
	}
	h.signal()
}

// startSweep makes every watched order due, unless the last sweep is still under way.
func (h *Hub) startSweep() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.sweep) > 0 {
		return
	}
	h.sweep = make([]pipeline.OrderKey, 0, len(h.watched))
	for key := range h.watched {
		h.sweep = append(h.sweep, key)
	}
	h.signal()
}

// signal wakes the reader.
func (h *Hub) signal() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// end closes every watch.
func (h *Hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for _, watches := range h.watched {
		for _, w := range watches {
			close(w.changes)
		}
	}
}
