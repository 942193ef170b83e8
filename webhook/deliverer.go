package webhook

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// lookEvery is how late the first of some events is delivered, at most; those that follow it come at once.
	pollEvery = 250 * time.Millisecond
	// lookPauseMax is how long to wait after Postgres failed, at most.
	pollBackoffMax = 5 * time.Second
	// sequenceBatch is how many events one transaction makes readable: some 20 ms.
	sequenceBatch = 1000
	// pageEvents is how many events are read at once, and how many are delivered again at most when a process dies before
	// it notes them: some 100 KB.
	pageEvents = 50
	// noteEvery is how long deliveries go on before they are noted, which also prolongs the lease.
	saveEvery = 3 * time.Second
	// leaseFor outlives whatever happens between two notes: noteEvery, one delivery, and a call of Postgres on each side.
	// The endpoints of a process that died wait so long.
	leaseFor = saveEvery + sendTimeout + 2*storeTimeout
	// storeTimeout bounds each call of Postgres.
	storeTimeout = 5 * time.Second
	// storeCalls is how many calls of Postgres deliveries make at once: the pool belongs to the orders.
	storeCalls = 2
	// stopGrace is how long a delivery under way may take when the process is told to stop. Cut off, it happens again.
	stopGrace = 3 * time.Second
	// showEvery is the age of the metrics of endpoints.
	metricsEvery = 5 * time.Second
)

// Deliverer delivers the events of the outbox. Any number may run: each endpoint is claimed by one of them at a time, and
// has a goroutine of its own, so that one which hangs delays no other.
//
// An event is sent only after the one before it was answered with 2xx and, by whoever sent it, counted as passed. So a
// deliverer that lost its claim without knowing (its process hung) can only repeat what has arrived before: the lease saves
// work, order does not rest on it.
type Deliverer struct {
	store   Store
	sender  *sender
	metrics *Metrics
	log     *slog.Logger
	lease   time.Duration
	backoff   func(failures int) time.Duration
	calls   chan struct{} // a token for each call of Postgres under way
	slots   chan struct{} // a token for each endpoint under way
	running sync.WaitGroup
}

// NewDeliverer returns a Deliverer that does nothing until it runs.
func NewDeliverer(store Store, policy Policy, m *Metrics, log *slog.Logger) *Deliverer {
	return &Deliverer{
		store: store, sender: newSender(policy), metrics: m, log: log, lease: leaseFor, backoff: retryBackoff,
		calls: make(chan struct{}, storeCalls), slots: make(chan struct{}, MaxEndpoints),
	}
}

// Run delivers until the context ends, and returns when nothing is under way any more: within stopGrace and one call of
// Postgres.
func (d *Deliverer) Run(ctx context.Context) {
	defer d.sender.close()
	defer d.running.Wait()
	wait, shown := pollEvery, time.Time{}
	for ctx.Err() == nil {
		err := d.poll(ctx)
		if err == nil && time.Since(shown) >= metricsEvery {
			shown = time.Now()
			err = d.updateMetrics(ctx)
		}
		switch {
		case err == nil:
			wait = pollEvery
		case ctx.Err() == nil:
			d.log.Warn("events can't be delivered; they wait in the outbox", "error", err)
			wait = min(2*wait, pollBackoffMax)
		}
		sleep(ctx, wait)
	}
}

// look makes events readable and begins to deliver to the endpoints that are due.
func (d *Deliverer) poll(ctx context.Context) error {
	for given := sequenceBatch; given == sequenceBatch; {
		if err := d.call(ctx, func(ctx context.Context) (err error) {
			given, err = d.store.SequenceEvents(ctx, sequenceBatch)
			return err
		}); err != nil {
			return err
		}
	}
	free := cap(d.slots) - len(d.slots) // only this goroutine takes slots
	if free == 0 {
		return nil
	}
	asked := time.Now()
	var claims []Claim
	if err := d.call(ctx, func(ctx context.Context) (err error) {
		claims, err = d.store.ClaimEndpoints(ctx, free, d.lease)
		return err
	}); err != nil {
		return err
	}
	for i := range claims {
		d.slots <- struct{}{}
		d.running.Go(func() {
			defer func() { <-d.slots }()
			(&endpointRun{Deliverer: d, claim: claims[i], cursor: claims[i].Cursor, savedAt: asked}).run(ctx)
		})
	}
	return nil
}

func (d *Deliverer) updateMetrics(ctx context.Context) error {
	return d.call(ctx, func(ctx context.Context) error {
		endpoints, err := d.store.Endpoints(ctx)
		if err == nil {
			d.metrics.setEndpoints(endpoints)
		}
		return err
	})
}

// call runs a call of Postgres once there is room for one, within storeTimeout.
func (d *Deliverer) call(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	select {
	case d.calls <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-d.calls }()
	return do(ctx)
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
