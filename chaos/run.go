package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"sluice/db"
	"sluice/internal/buyers"
	"sluice/pipeline"
	"sluice/pipeline/recovery"
	"sluice/pipeline/sales"
)

const (
	bigSale         = "big"     // never sells out
	bigTotal        = 1_000_000 // for every minute
	dropTotal       = 800       // of each of the sales that do, in a run of a minute or more
	partitions      = 16
	saleLasts       = 24 * time.Hour // before and after: a clock that is an hour wrong does not open or close it
	requestDeadline = 3 * time.Second
	attempts        = 9 // of one buyer until there is an answer that says yes or no
)

// Run does a whole run and reports to out as it goes. The report is there whenever the run was; an error says why it
// could not be done or proven. Everything that was started is gone when it returns.
func Run(ctx context.Context, o Options, out io.Writer) (report *Report, err error) {
	o = o.WithDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	say := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	say("chaos: seed %d, %s of faults", o.Seed, o.Duration)
	r, err := newRun(ctx, o, say)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	r.inject(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return r.report(ctx)
}

// run is one run.
type run struct {
	opts    Options
	plan    []step
	system  *system
	store   *db.Store
	sales   []*pipeline.Sale // the big one, and the drops
	history *buyers.History
	client  *buyers.Client
	crowd   *crowd

	poisonNumbers atomic.Int64
	scheduler     *scheduler
	took          time.Duration // of the faults
	settling      time.Duration // from the end of the faults until everything accepted was persisted
	unsettled     string        // what was left when the patience with it ended
}

// newRun starts the servers, makes the sales, and starts the processes.
func newRun(ctx context.Context, o Options, say func(string, ...any)) (*run, error) {
	r := &run{opts: o, plan: newPlan(o)}
	r.scheduler = &scheduler{run: r, say: say}
	if err := r.open(ctx); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *run) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	var err error
	if r.system, err = openSystem(ctx, r.opts); err != nil {
		return err
	}
	if r.store, err = db.Open(ctx, r.system.databaseURL,
		db.Options{ApplicationName: "sluice-chaos"}); err != nil {
		return err
	}
	if err := r.makeSales(ctx); err != nil {
		return err
	}
	if err := r.system.startProcesses(ctx); err != nil {
		return err
	}
	r.client = buyers.NewClient(buyers.Options{
		APIs: r.system.fronts(), Connections: r.opts.Clients + r.opts.Clients/4, Deadline: requestDeadline,
		Attempts:   attempts,
		Durability: r.opts.receipts(),
	})
	r.history = r.client.History
	r.crowd = &crowd{opts: r.opts, client: r.client, drops: r.saleIDs()[1:]}
	return nil
}

func (r *run) saleIDs() []string {
	var ids []string
	for _, sale := range r.sales {
		ids = append(ids, sale.ID)
	}
	return ids
}

// makeSales makes one big sale, and drops enough for the crowd to sell out one after the other.
func (r *run) makeSales(ctx context.Context) error {
	if _, err := r.store.EnsurePartitions(ctx, partitions); err != nil {
		return err
	}
	minutes := 1 + int64(r.opts.Duration/time.Minute)
	quiet := slog.New(slog.DiscardHandler)
	if err := recovery.EnsureVerified(ctx, r.system.rdb, pipeline.DefaultKeys, r.store, partitions, quiet); err != nil {
		return err
	}
	publisher := sales.NewPublisher(r.system.rdb, pipeline.DefaultKeys, r.store, partitions, quiet)
	create := func(id string, total int64, most int) error {
		sale := &pipeline.Sale{
			ID: id, Title: id, Total: total, MaxQuantity: most,
			OpensAt: time.Now().Add(-saleLasts), ClosesAt: time.Now().Add(saleLasts),
		}
		r.sales = append(r.sales, sale)
		return publisher.Create(ctx, sale)
	}
	if err := create(bigSale, bigTotal*minutes, 3); err != nil {
		return err
	}
	drop := max(1, int64(dropTotal*min(1, r.opts.Duration.Minutes())))
	for i := range 10 * minutes {
		if err := create(fmt.Sprintf("drop-%d", i+1), drop, 1); err != nil {
			return err
		}
	}
	return nil
}

// inject is everything up to the proof.
func (r *run) inject(ctx context.Context) {
	r.shopWhile(ctx, func() {
		began := time.Now()
		r.scheduler.follow(ctx, r.plan)
		// The streams are poisoned once more. A rebuild makes good what leaked before, so that a dead letter which
		// gives nothing back, or gives back what another order has, may only show when nothing is lost after it.
		if !r.opts.Calm {
			last := step{Number: len(r.plan) + 1, At: r.opts.Duration, Kind: poison, Target: "servers"}
			r.scheduler.injectPair(ctx, last, nil)
		}
		buyers.Sleep(ctx, time.Until(began.Add(r.opts.Duration)))
	})
}

// shopWhile has the crowd shop until something is done, and then waits until all is settled.
func (r *run) shopWhile(ctx context.Context, do func()) {
	shopping, closeShop := context.WithCancel(ctx)
	defer closeShop()
	shopped := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(shopped)
		r.crowd.shop(shopping)
	}()
	do()
	r.took = time.Since(began)
	closeShop()
	r.system.heal()
	<-shopped
	r.settle(ctx)
	r.system.stopProcesses()
}

func (r *run) close() error {
	if r.client != nil {
		r.client.Close()
	}
	if r.store != nil {
		r.store.Close()
	}
	if r.system != nil {
		return r.system.close()
	}
	return nil
}
