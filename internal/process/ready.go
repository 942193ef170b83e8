package process

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/httpapi"
	"sluice/pipeline"
	"sluice/pipeline/worker"
)

// rehearsedAtOnce is how many partitions an api rehearses at once: with a server that hangs, four of them are given up
// in the time of one attempt, and few connections of the orders are taken.
const rehearsedAtOnce = 4

// readiness answers whether this api takes orders. An order needs Redis, as its user and by its script, and nothing
// else: without the other parts orders are taken all the same, and the answer says what is missing.
func (a *api) readiness() *httpapi.Readiness {
	r := &orderRehearsal{api: a}
	journal := func(context.Context) error { return a.admission.Journal().Works() }
	checks := []httpapi.Check{
		{Name: "orders", Run: r.some},
		{Name: "partitions", Run: r.all, Optional: true},
		{Name: "journal", Run: journal, Optional: true},
		{Name: "postgres", Run: a.parts.Postgres.Ping, Optional: true},
	}
	if a.jwks != nil { // without keys no buyer can be told from another; with old ones they can
		checks = append(checks, httpapi.Check{Name: "keys", Run: a.jwks.Usable},
			httpapi.Check{Name: "jwks", Run: a.jwks.Fetched, Optional: true})
	}
	return httpapi.NewReadiness(a.parts.Log, checks...)
}

// workerReadiness answers whether a worker would persist an order.
func workerReadiness(w *worker.Worker, stores *Stores, log *slog.Logger) *httpapi.Readiness {
	return httpapi.NewReadiness(log,
		httpapi.Check{Name: "redis", Run: w.Rehearse},
		httpapi.Check{Name: "postgres", Run: stores.Postgres.Rehearse},
	)
}

// orderRehearsal rehearses an order on every partition, once for both of its checks.
type orderRehearsal struct {
	api *api

	mu     sync.Mutex // protects the rest; held during a rehearsal
	errs   []error    // by partition
	expiry time.Time
}

// rehearsalAge joins the two checks of one answer, which begin together; it is shorter than an answer is kept.
const rehearsalAge = 200 * time.Millisecond

func (r *orderRehearsal) run(ctx context.Context) []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Now().Before(r.expiry) {
		return r.errs
	}
	r.errs = make([]error, r.api.parts.Partitions)
	var each errgroup.Group
	each.SetLimit(rehearsedAtOnce)
	for p := range r.errs {
		each.Go(func() error {
			r.errs[p] = r.api.admission.Rehearse(ctx, pipeline.Partition(p))
			return nil
		})
	}
	_ = each.Wait() // none of them returns an error
	r.expiry = time.Now().Add(rehearsalAge)
	return r.errs
}

// some returns nil when orders are taken on one of the partitions that have sales, at least. Where a part of a cluster
// is away, other apis can do no more than this one: turning all of them away would make a whole outage of it.
func (r *orderRehearsal) some(ctx context.Context) error {
	used := r.api.sales.Partitions(time.Now())
	var first error
	for p, err := range r.run(ctx) {
		if len(used) > 0 && !used[pipeline.Partition(p)] {
			continue
		}
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// all returns why orders are not taken on some partitions.
func (r *orderRehearsal) all(ctx context.Context) error {
	if err := errors.Join(r.run(ctx)...); err != nil {
		return pipeline.Wrap(pipeline.KindUnavailable, err, "no order is taken on some partitions")
	}
	return nil
}
