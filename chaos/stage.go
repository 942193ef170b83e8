package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"sluice/db"
	"sluice/pipeline"
)

const (
	bigSale    = "big"     // never sells out
	bigTotal   = 1_000_000 // for every minute
	dropTotal  = 800       // of each of the sales that do, in a run of a minute or more
	partitions = 16
	saleLasts  = 6 * time.Hour
)

// stage is one run.
type stage struct {
	opts    Options
	plan    []Step
	cast    *cast
	store   *db.Store
	sales   []*pipeline.Sale // the big one, and the drops
	history *history
	client  *client
	crowd   *crowd

	poisonNumbers atomic.Int64
	director      *director
	took          time.Duration // of the faults
	settling      time.Duration // from the end of the faults until everything accepted was persisted
	unsettled     string        // what was left when the patience with it ended
}

// openStage starts the servers, makes the sales, and starts the processes.
func openStage(ctx context.Context, o Options, say func(string, ...any)) (*stage, error) {
	s := &stage{opts: o, plan: newPlan(o)}
	s.director = &director{stage: s, say: say, turns: map[string]*turn{}}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *stage) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	var err error
	if s.cast, err = openCast(ctx); err != nil {
		return err
	}
	if s.store, err = db.Open(ctx, s.cast.servers.Postgres.URL(), db.Options{ApplicationName: "sluice-chaos"}); err != nil {
		return err
	}
	if err := s.makeSales(ctx); err != nil {
		return err
	}
	if err := s.cast.play(ctx); err != nil {
		return err
	}
	var ids []string
	for _, sale := range s.sales {
		ids = append(ids, sale.ID)
	}
	s.history = newHistory()
	s.client = newClient(s.cast.fronts(), ids, s.opts.Clients+s.opts.Clients/4)
	s.crowd = &crowd{opts: s.opts, client: s.client, history: s.history, drops: len(s.sales) - 1}
	return nil
}

// makeSales makes one big sale, and drops enough for the crowd to sell out one after the other.
func (s *stage) makeSales(ctx context.Context) error {
	if _, err := s.store.EnsurePartitions(ctx, partitions); err != nil {
		return err
	}
	minutes := 1 + int64(s.opts.Duration/time.Minute)
	quiet := slog.New(slog.DiscardHandler)
	if err := pipeline.EnsureVerified(ctx, s.cast.rdb, pipeline.DefaultKeys, s.store, partitions, quiet); err != nil {
		return err
	}
	publisher := pipeline.NewPublisher(s.cast.rdb, pipeline.DefaultKeys, s.store, partitions, quiet)
	create := func(id string, total int64, most int) error {
		sale := &pipeline.Sale{
			ID: id, Title: id, Total: total, MaxQuantity: most,
			OpensAt: time.Now().Add(-time.Minute), ClosesAt: time.Now().Add(saleLasts),
		}
		s.sales = append(s.sales, sale)
		return publisher.Create(ctx, sale)
	}
	if err := create(bigSale, bigTotal*minutes, 3); err != nil {
		return err
	}
	drop := max(1, int64(dropTotal*min(1, s.opts.Duration.Minutes())))
	for i := range 10 * minutes {
		if err := create(fmt.Sprintf("drop-%d", i+1), drop, 1); err != nil {
			return err
		}
	}
	return nil
}

// play is everything up to the proof.
func (s *stage) play(ctx context.Context) {
	s.playWhile(ctx, func() {
		began := time.Now()
		s.director.direct(ctx, s.plan)
		s.poisonLast(ctx)
		sleep(ctx, time.Until(began.Add(s.opts.Duration)))
	})
}

// poisonLast poisons the streams once more. A rebuild makes good what leaked before, so that a dead letter which gives nothing
// back, or gives back what another order holds, may only show when nothing is lost after it.
func (s *stage) poisonLast(ctx context.Context) {
	if !s.opts.Calm {
		s.director.carryOut(ctx, Step{Number: len(s.plan) + 1, At: s.opts.Duration, Kind: Poison, Target: "redis"})
	}
}

// playWhile has the crowd shop until something is done.
func (s *stage) playWhile(ctx context.Context, do func()) {
	shopping, closeShop := context.WithCancel(ctx)
	defer closeShop()
	crowded := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(crowded)
		s.crowd.run(shopping)
	}()
	do()
	s.took = time.Since(began)
	closeShop()
	s.heal()
	<-crowded
	s.settle(ctx)
	s.cast.stopActors()
}

func (s *stage) close() error {
	if s.client != nil {
		s.client.close()
	}
	if s.store != nil {
		s.store.Close()
	}
	if s.cast != nil {
		return s.cast.close()
	}
	return nil
}
