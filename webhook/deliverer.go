package webhook

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// pollEvery is the longest delay of the first of some events; those that follow it are delivered at once.
	pollEvery = 250 * time.Millisecond
	// pollBackoffMax is the longest wait after Postgres failed.
	pollBackoffMax = 5 * time.Second
	// sequenceBatch is how many events one transaction makes readable: some 20 ms.
	sequenceBatch = 1000
	// pageEvents is how many events are read at once, and at most delivered again when a process dies before it saves
	// its progress: some 100 KB.
	pageEvents = 50
	// saveEvery is how long deliveries go on until progress is saved, which also extends the lease.
	saveEvery = 3 * time.Second
	// leaseFor outlasts the time between two saves: saveEvery, one delivery, and a call of Postgres on each side. The
	// endpoints of a process that died wait this long.
	leaseFor = saveEvery + sendTimeout + 2*storeTimeout
	// withheldPause is how long events wait that can't be signed here: another worker may have the key.
	withheldPause = 15 * time.Second
	// withheldLogEvery is how often the log says so.
	withheldLogEvery = time.Minute
	// storeTimeout bounds each call of Postgres.
	storeTimeout = 5 * time.Second
	// storeCalls is how many calls of Postgres deliveries make at once: the pool is meant for orders.
	storeCalls = 2
	// stopGrace is how long a delivery in flight may take when the process is asked to stop. One that is cut off is
	// repeated.
	stopGrace = 3 * time.Second
	// metricsEvery is the interval at which the endpoints' metrics are updated.
	metricsEvery = 5 * time.Second
)

// Deliverer delivers the events of the outbox. Any number may run: each endpoint is claimed by one of them at a time,
// and has a goroutine of its own, so that an endpoint which hangs delays no other.
//
// An event is sent only after the previous one was answered with 2xx and counted as delivered by the process that sent
// it. So a deliverer that lost its claim without knowing (its process hung) can only repeat what has arrived before:
// the lease saves work, order does not depend on it.
type Deliverer struct {
	store   Store
	sender  *sender
	metrics *Metrics
	log     *slog.Logger
	lease   time.Duration
	backoff func(failures int) time.Duration

	withheld time.Duration  // see withheldPause
	said     rate.Sometimes // that events are withheld

	calls   chan struct{} // a token for each call of Postgres in flight
	slots   chan struct{} // a token for each endpoint in work
	running sync.WaitGroup
}

// NewDeliverer returns a Deliverer that sends where the policy allows, and signs with secrets that
// are stored under keys. It does nothing until it runs.
func NewDeliverer(store Store, policy Policy, keys *Keyring, m *Metrics, log *slog.Logger) *Deliverer {
	return &Deliverer{
		store: store, sender: newSender(policy, keys), metrics: m, log: log, lease: leaseFor, backoff: retryBackoff,
		withheld: withheldPause, said: rate.Sometimes{Interval: withheldLogEvery},
		calls: make(chan struct{}, storeCalls), slots: make(chan struct{}, MaxEndpoints),
	}
}

// Run delivers until the context ends, and returns when nothing is in flight any more: within stopGrace and one call of
// Postgres.
func (d *Deliverer) Run(ctx context.Context) {
	defer d.sender.close()
	defer d.running.Wait()
	wait, updated := pollEvery, time.Time{}
	for ctx.Err() == nil {
		err := d.poll(ctx)
		if err == nil && time.Since(updated) >= metricsEvery {
			updated = time.Now()
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

// poll makes events readable and starts a run for each endpoint that is due.
func (d *Deliverer) poll(ctx context.Context) error {
	for sequenced := sequenceBatch; sequenced == sequenceBatch; {
		if err := d.call(ctx, func(ctx context.Context) (err error) {
			sequenced, err = d.store.SequenceEvents(ctx, sequenceBatch)
			return err
		}); err != nil {
			return err
		}
	}
	free := cap(d.slots) - len(d.slots) // only this goroutine takes slots
	if free == 0 {
		return nil
	}
	claimedAt := time.Now() // or a little later
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
			(&endpointRun{Deliverer: d, claim: claims[i], cursor: claims[i].Cursor, savedAt: claimedAt}).run(ctx)
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

// call makes a call of Postgres once there is room for one, within storeTimeout.
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
