package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"sluice/db"
	"sluice/internal/buyers"
	"sluice/internal/process"
	"sluice/internal/programs"
	"sluice/pipeline"
	"sluice/pipeline/recovery"
	"sluice/pipeline/sales"
)

const (
	saleID          = "demo"
	unitPrice       = 1999 // in minor units
	currency        = "EUR"
	workers         = 2                       // so that one can take over from the other
	opensIn         = 1500 * time.Millisecond // time for the early ones to come too early
	saleLasts       = time.Hour
	drainLimit      = 30 * time.Second
	calmRate        = 1000            // requests per second before and after the rush
	connections     = 128             // at most, as many as there are senders
	requestDeadline = 5 * time.Second // the API promises an answer within 2 s
	attempts        = 8               // at one request, until there is an answer that says yes or no
	keptWarnings    = 20              // shown when something went wrong
	actor           = "demo"
)

// session is one run of the demo, phase by phase.
type session struct {
	opts     Options
	plan     plan
	narrator *narrator

	stack     *programs.Stack
	redis     redis.UniversalClient
	store     *db.Store
	ledger    ledger
	publisher *sales.Publisher
	client    *buyers.Client
	history   *buyers.History
	provider  *buyers.Provider
	sale      *pipeline.Sale

	rushOver chan struct{}
	nodeBack chan struct{} // closed once no node of Postgres is away, or will be
	node     *NodeKill
	rushTook time.Duration
	killed   *WorkerKill
	warnings programs.Warnings

	mu       sync.Mutex  // protects the rest
	taken    []takenOver // by the processes' logs
	inFlight []string    // orders of the worker when it died
}

func newSession(o Options, out io.Writer) *session {
	return &session{
		opts: o, plan: newPlan(o), narrator: newNarrator(out), rushOver: make(chan struct{}),
		nodeBack: make(chan struct{}),
		warnings: programs.Warnings{Keep: keptWarnings},
	}
}

// open starts the servers, the API and the workers, and what the demo itself needs to look at them.
func (s *session) open(ctx context.Context) (err error) {
	steps := map[string]string{
		"servers":  "Starting a private Redis (every write fsynced) and a private Postgres",
		"programs": fmt.Sprintf("Starting the API and %d workers, each a process of its own", workers),
	}
	if s.opts.Citus {
		steps["servers"] = "Starting a private Redis (every write fsynced) and a private Postgres of three nodes (Citus)"
	}
	secret := buyers.NewSecret()
	s.stack, err = programs.Start(ctx, programs.Options{
		Workers: workers, HTTPAddr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0",
		Environ: append(programs.Environ(), "PAYMENT_WEBHOOK_SECRET="+secret), OnLine: s.onLine, Citus: s.opts.Citus,
	}, func(step string) {
		if text := steps[step]; text != "" {
			s.narrator.chapterf("%s", text)
		}
	})
	if err != nil {
		return err
	}
	cfg := s.stack.Config
	if s.redis, err = process.OpenRedis(cfg); err != nil {
		return err
	}
	if s.store, err = db.Open(ctx, cfg.DatabaseURL, db.Options{ApplicationName: "sluice-demo"}); err != nil {
		return err
	}
	if s.ledger.pool, err = pgxpool.New(ctx, cfg.DatabaseURL); err != nil {
		return err
	}
	quiet := slog.New(slog.DiscardHandler)
	if err := recovery.EnsureVerified(ctx, s.redis, pipeline.DefaultKeys, s.store, cfg.Partitions, quiet); err != nil {
		return err
	}
	s.publisher = sales.NewPublisher(s.redis, pipeline.DefaultKeys, s.store, cfg.Partitions, quiet)
	s.client = buyers.NewClient(buyers.Options{
		APIs: []string{s.stack.API.URL()}, Connections: connections, Deadline: requestDeadline, Attempts: attempts,
		Durability: "fsync", Refusals: []buyers.Outcome{buyers.NotOpen, buyers.Closed},
	})
	s.history = s.client.History
	s.provider = &buyers.Provider{Client: s.client, Sale: saleID, Price: unitPrice, Currency: currency, Secret: secret}
	s.narrator.notef("API at %s, workers %d and %d", s.stack.API.URL(), s.stack.Workers[0].PID(),
		s.stack.Workers[1].PID())
	return nil
}

// close ends everything that open started. It may be called after a failed open.
func (s *session) close(ctx context.Context) error {
	if s.client != nil {
		s.client.Close()
	}
	if s.ledger.pool != nil {
		s.ledger.pool.Close()
	}
	if s.store != nil {
		s.store.Close()
	}
	var errs []error
	if s.redis != nil {
		errs = append(errs, s.redis.Close())
	}
	if s.stack != nil {
		errs = append(errs, s.stack.Stop(ctx))
	}
	return errors.Join(errs...)
}
