package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/cmd/sluice/crew"
	"sluice/cmd/sluice/table"
	"sluice/db"
	"sluice/internal/process"
	"sluice/pipeline"
)

const (
	saleID       = "demo"
	workers      = 2                       // so that one can take over from the other
	opensIn      = 1500 * time.Millisecond // time for the early ones to come too early
	saleLasts    = time.Hour
	paymentTime  = 15 * time.Minute // longer than any demo: nothing expires
	drainLimit   = 30 * time.Second
	earlyRate    = 1000 // requests per second before and after the rush
	keptSerious  = 20   // lines of warning that are shown when something went wrong
	actor        = "demo"
	messageTaken = "took over pending events" // as package pipeline logs it
	reasonDead   = "dead_worker"
)

// show is one run of the demo, act by act.
type show struct {
	opts    Options
	plan    plan
	voice   *voice
	history *history

	crew      *crew.Crew
	redis     redis.UniversalClient
	store     *db.Store
	ledger    *ledger
	publisher *pipeline.Publisher
	client    *client
	crowd     *crowd
	sale      *pipeline.Sale

	rushOver chan struct{}
	rushTook time.Duration
	accident *Accident

	mu      sync.Mutex // protects the two below, which the members' logs fill
	taken   []takenOver
	serious []string
}

type takenOver struct {
	worker string
	orders int
	at     time.Time
}

func newShow(o Options, out io.Writer) *show {
	return &show{opts: o, plan: newPlan(o), voice: newVoice(out), history: newHistory(o.Buyers), rushOver: make(chan struct{})}
}

// open starts the servers, the API and the workers, and what the demo itself needs to look at them.
func (s *show) open(ctx context.Context) (err error) {
	steps := map[string]string{
		"servers":  "Starting a private Redis (every write fsynced) and a private Postgres",
		"programs": fmt.Sprintf("Starting the API and %d workers, each a process of its own", workers),
	}
	s.crew, err = crew.Start(ctx, crew.Options{
		Workers: workers, HTTPAddr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0", Environ: environ(), Hear: s.hear,
	}, func(step string) {
		if text := steps[step]; text != "" {
			s.voice.chapter("%s", text)
		}
	})
	if err != nil {
		return err
	}
	if s.redis, err = process.OpenRedis(s.crew.Config); err != nil {
		return err
	}
	if s.store, err = db.Open(ctx, s.crew.Config.DatabaseURL, db.Options{ApplicationName: "sluice-demo"}); err != nil {
		return err
	}
	if s.ledger, err = openLedger(ctx, s.crew.Config.DatabaseURL, saleID); err != nil {
		return err
	}
	s.publisher = pipeline.NewPublisher(s.redis, pipeline.DefaultKeys, s.store, s.crew.Config.Partitions, slog.New(slog.DiscardHandler))
	s.client = newClient(s.crew.API.URL(), saleID)
	s.crowd = &crowd{s.client, s.history}
	s.voice.note("API at %s, workers %d and %d", s.crew.API.URL(), s.crew.Workers[0].PID(), s.crew.Workers[1].PID())
	return nil
}

// environ is what the members see of our environment: what any process needs, and none of the settings that may be in it
// for another installation.
func environ() []string {
	keep := []string{"PATH", "HOME", "TMPDIR", "LANG", "GOMAXPROCS", "GODEBUG", "GORACE", "GOCOVERDIR"}
	return slices.DeleteFunc(os.Environ(), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return !slices.Contains(keep, name) && !strings.HasPrefix(name, "SLUICE_")
	})
}

// close ends everything that open started. It may be called after a failed open.
func (s *show) close(ctx context.Context) error {
	if s.client != nil {
		s.client.close()
	}
	if s.ledger != nil {
		s.ledger.close()
	}
	if s.store != nil {
		s.store.Close()
	}
	var errs []error
	if s.redis != nil {
		errs = append(errs, s.redis.Close())
	}
	if s.crew != nil {
		errs = append(errs, s.crew.Stop(ctx))
	}
	return errors.Join(errs...)
}

// announce creates the sale and lets the impatient ones find it closed.
func (s *show) announce(ctx context.Context) error {
	now, err := s.redis.Time(ctx).Result()
	if err != nil {
		return err
	}
	opens := now.Add(opensIn)
	s.sale = &pipeline.Sale{
		ID: saleID, Title: "Demo", Total: int64(s.opts.Stock), MaxQuantity: 1,
		OpensAt: opens, ClosesAt: opens.Add(saleLasts), PaymentWindow: paymentTime,
	}
	if err := s.publisher.Create(ctx, s.sale); err != nil {
		return err
	}
	s.voice.chapter("A sale of %s units opens in %s; %s buyers wait, some can't (seed %d)",
		number(s.opts.Stock), opensIn, number(s.opts.Buyers), s.opts.Seed)
	s.crowd.rush(ctx, s.plan.early, pace{rate: earlyRate})
	s.voice.note("%s came too early: %s", number(len(s.plan.early)), s.codes(codeNotOpen))
	sleep(ctx, time.Until(opens)) // the private Redis has this machine's clock
	return ctx.Err()
}

// rush is the sale, with a worker's death in the middle of it.
func (s *show) rush(ctx context.Context) error {
	s.voice.chapter("The rush: %s requests, with retries, double clicks and clients that give up; a worker will die in the middle", number(len(s.plan.rush)))
	var accident sync.WaitGroup
	var accidentErr error
	accident.Go(func() { accidentErr = s.causeAccident(ctx) })
	done := s.voice.watch(s.picture(ctx))
	began := time.Now()
	s.crowd.rush(ctx, s.plan.rush, newPace(len(s.plan.rush), s.opts.Rate))
	s.rushTook = time.Since(began)
	done()
	close(s.rushOver)
	if err := s.end(ctx); err != nil {
		accident.Wait()
		return err
	}
	s.voice.chapter("Until all that was accepted is in Postgres, the dead worker's orders too")
	done = s.voice.watch(func() string { return s.backlog(ctx) })
	accident.Wait()
	err := s.drain(ctx)
	done()
	return errors.Join(accidentErr, err)
}

// end closes the sale; the last ones come too late. Those who gave up and still don't know what they have ask again.
func (s *show) end(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	closed := pipeline.SaleClosed
	sale, err := s.publisher.Change(ctx, saleID, actor, pipeline.SaleChange{State: &closed})
	if err != nil {
		return err
	}
	s.sale = sale
	s.voice.chapter("The sale is closed; %s more requests come too late", number(len(s.plan.late)))
	s.crowd.rush(ctx, s.plan.late, pace{rate: earlyRate})
	s.crowd.rush(ctx, s.history.open(), pace{rate: earlyRate})
	s.voice.note("%s", s.codes(codeClosed))
	return ctx.Err()
}

// drain waits until the stream is empty and nobody holds anything.
func (s *show) drain(ctx context.Context) error {
	for until := time.Now().Add(drainLimit); time.Now().Before(until) && ctx.Err() == nil; sleep(ctx, countEvery) {
		length, pending, err := s.queue(ctx)
		if err != nil {
			return err
		}
		if length == 0 && pending == 0 {
			return nil
		}
	}
	return ctx.Err() // the checks say what is left
}

// queue tells how many events the stream holds, and how many of them are in somebody's hands.
func (s *show) queue(ctx context.Context) (length, pending int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	pipe := s.redis.Pipeline()
	events := pipe.XLen(ctx, s.stream())
	held := pipe.XPending(ctx, s.stream(), pipeline.Group)
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, 0, err
	}
	return events.Val(), held.Val().Count, nil
}

// stream is where the sale's events are: it is placed on one partition.
func (s *show) stream() string { return pipeline.DefaultKeys.Orders(s.sale.Partitions[0]) }

// hear notes what the members say that belongs to the story.
func (s *show) hear(line crew.Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if line.Message == messageTaken && line.Field("reason") == reasonDead {
		var orders int
		_, _ = fmt.Sscan(line.Field("events"), &orders) // 0 then fails the check
		s.taken = append(s.taken, takenOver{line.Member, orders, line.Time})
	}
	if line.Serious() && !strings.HasPrefix(line.Message, "AUTH_MODE=dev") {
		s.serious = append(s.serious, table.Printable(line.Member+": "+line.Text()))
		s.serious = s.serious[max(0, len(s.serious)-keptSerious):]
	}
}

// takeovers adds up what each worker took over.
func (s *show) takeovers(since time.Time) []Takeover {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Takeover
	for _, t := range s.taken {
		i := slices.IndexFunc(list, func(known Takeover) bool { return known.Worker == t.worker })
		if i < 0 {
			list = append(list, Takeover{Worker: t.worker, AfterMS: t.at.Sub(since).Milliseconds()})
			i = len(list) - 1
		}
		list[i].Orders += t.orders
	}
	return list
}

// picture is one look at the rush.
func (s *show) picture(ctx context.Context) func() string {
	return func() string {
		t := s.history.tally()
		all := len(s.plan.early) + len(s.plan.rush)
		length, _, err := s.queue(ctx)
		queued := number(int(length))
		if err != nil {
			queued = "?"
		}
		return fmt.Sprintf("%s %s of %s requests · %s accepted · %s repeats of those · %s refused · %s in the stream",
			bar(t.asked, all), number(t.asked), number(all), number(t.accepted), number(t.replays+t.alreadyOrdered), number(t.refused), queued)
	}
}

func (s *show) backlog(ctx context.Context) string {
	length, pending, err := s.queue(ctx)
	if err != nil {
		return "?"
	}
	return fmt.Sprintf("%s in the stream, %s of them in a worker's hands", number(int(length)), number(int(pending)))
}

// codes says how often an answer was given so far.
func (s *show) codes(code string) string {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	return fmt.Sprintf("%s times %s", number(s.history.codes[code]), code)
}

func number(n int) string { return table.Number(int64(n)) }
