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

	"sluice/internal/programs"
	"sluice/db"
	"sluice/internal/process"
	"sluice/pipeline"
)

const (
	saleID     = "demo"
	workers    = 2                       // so that one can take over from the other
	opensIn    = 1500 * time.Millisecond // time for the early ones to come too early
	saleLasts  = time.Hour
	drainLimit = 30 * time.Second
	earlyRate  = 1000 // requests per second before and after the rush
	actor      = "demo"
)

// show is one run of the demo, act by act.
type show struct {
	opts    Options
	plan    plan
	voice   *voice
	history *history

	crew      *programs.Stack
	redis     redis.UniversalClient
	store     *db.Store
	ledger    *ledger
	look      *ledger // for the picture that moves: a connection serves one at a time
	publisher *pipeline.Publisher
	client    *client
	crowd     *crowd
	provider  *provider
	forger    *provider // does not have the secret
	sale      *pipeline.Sale

	rushOver chan struct{}
	rushTook time.Duration
	accident *Accident

	mu         sync.Mutex  // protects the rest
	taken      []takenOver // by the members' logs, as the next one
	serious    []string
	killedWith []string // orders in the hands of the worker when it died
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
	secret := newSecret()
	s.crew, err = programs.Start(ctx, programs.Options{
		Workers: workers, HTTPAddr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0", Environ: append(environ(), "PAYMENT_WEBHOOK_SECRET="+secret), OnLine: s.hear,
	}, func(step string) {
		if text := steps[step]; text != "" {
			s.voice.chapterf("%s", text)
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
	if s.look, err = openLedger(ctx, s.crew.Config.DatabaseURL, saleID); err != nil {
		return err
	}
	quiet := slog.New(slog.DiscardHandler)
	if err := pipeline.EnsureVerified(ctx, s.redis, pipeline.DefaultKeys, s.store, s.crew.Config.Partitions, quiet); err != nil {
		return err
	}
	s.publisher = pipeline.NewPublisher(s.redis, pipeline.DefaultKeys, s.store, s.crew.Config.Partitions, quiet)
	s.client = newClient(s.crew.API.URL(), saleID)
	s.crowd = &crowd{s.client, s.history}
	webhooks := s.crew.API.URL() + "/v1/webhooks/payments"
	s.provider, s.forger = &provider{s.client, webhooks, secret}, &provider{s.client, webhooks, newSecret()}
	s.voice.notef("API at %s, workers %d and %d", s.crew.API.URL(), s.crew.Workers[0].PID(), s.crew.Workers[1].PID())
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
	for _, l := range []*ledger{s.ledger, s.look} {
		if l != nil {
			l.close()
		}
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
