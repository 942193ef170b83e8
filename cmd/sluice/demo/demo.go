package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"sluice/pipeline"
)

// Result is what a demo has shown.
type Result struct {
	OK          bool                  `json:"ok"`
	Seed        uint64                `json:"seed"`
	Stock       int                   `json:"stock"`
	Buyers      int                   `json:"buyers"`
	Requests    int                   `json:"requests"` // sent
	Repeated    int                   `json:"repeated"` // of them because there had been no answer
	Abandoned   int                   `json:"abandoned"`
	Answers     map[string]int        `json:"answers"` // by code
	Replays     int                   `json:"replays"` // 202s that repeated an earlier one
	PerSecond   float64               `json:"requests_per_second"`
	Latency     Spread                `json:"latency_ms"` // from request to answer, as the clients saw it
	PersistLag  Spread                `json:"persist_lag_ms"`
	Accident    *Accident             `json:"accident"`
	Ends        Ends                  `json:"ends"`
	Left        int                   `json:"left"`     // units that are for sale in the end
	Payments    map[string]int        `json:"payments"` // answers to the payment provider, by outcome or code
	Waiters     int                   `json:"waiters"`  // who joined the waitlist
	Leavers     int                   `json:"leavers"`  // of them who left again
	Checks      []Check               `json:"checks"`
	Audit       *pipeline.AuditReport `json:"-"`
	Complaints  []string              `json:"complaints,omitempty"` // of the API and the workers
	TookSeconds float64               `json:"took_seconds"`
}

// Spread is how long something took, in milliseconds.
type Spread struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Run plays the whole demo and tells it to out. The result is there whenever the sale was; an error says why the demo could
// not go on. Everything that was started is gone when it returns.
func Run(ctx context.Context, o Options, out io.Writer) (result *Result, err error) {
	o = o.WithDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := newShow(o, out)
	defer func() {
		err = errors.Join(err, s.close(context.WithoutCancel(ctx)))
	}()
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	if err := s.play(ctx); err != nil {
		return nil, err
	}
	return s.prove(ctx)
}

// play is everything up to the proof.
func (s *show) play(ctx context.Context) error {
	if err := s.announce(ctx); err != nil {
		return err
	}
	if err := s.rush(ctx); err != nil {
		return err
	}
	if err := s.takeTurns(ctx); err != nil {
		return err
	}
	return s.end(ctx)
}

// prove compares what buyers were told with what Postgres holds, and audits.
func (s *show) prove(ctx context.Context) (*Result, error) {
	s.voice.chapterf("The proof: what %s buyers and the payment provider were told, against what Postgres and Redis hold", number(s.opts.Buyers))
	held, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the orders and payments: %w", err)
	}
	ends, err := s.look.takings(ctx)
	if err != nil {
		return nil, fmt.Errorf("count the orders: %w", err)
	}
	checks := append(compare(s.history, held, s.opts.Stock), s.accident.rescued())
	left, err := s.nothingLeft(ctx)
	if err != nil {
		return nil, err
	}
	checks = append(checks, left)
	audit, err := pipeline.NewAuditor(s.redis, pipeline.DefaultKeys, s.store).Audit(ctx, s.sale)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	r := s.result(held.rows, checks, audit)
	r.Ends, r.Left = ends, held.left
	return r, nil
}

func (s *show) nothingLeft(ctx context.Context) (Check, error) {
	length, pending, err := s.queue(ctx)
	return Check{
		Name: "nothing is left in the stream", OK: length == 0 && pending == 0,
		Detail: fmt.Sprintf("%d events, %d pending", length, pending),
	}, err
}

func (s *show) result(rows []row, checks []Check, audit *pipeline.AuditReport) *Result {
	h := s.history
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &Result{
		Seed: s.opts.Seed, Stock: s.opts.Stock, Buyers: s.opts.Buyers, Requests: h.asked, Repeated: h.repeated,
		Abandoned: h.abandoned, Answers: h.codes, Replays: h.replays,
		PerSecond: float64(len(s.plan.rush)) / s.rushTook.Seconds(), Latency: spread(h.latencies),
		PersistLag: spread(s.lags(rows)), Accident: s.accident,
		Payments: h.payments, Waiters: h.waiters, Leavers: h.leavers, Checks: checks, Audit: audit,
		TookSeconds: time.Since(s.voice.began).Seconds(),
	}
	r.OK = audit.Clean() && !slices.ContainsFunc(checks, func(c Check) bool { return !c.OK })
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Complaints = s.serious
	return r
}

// lags are the times from accept to row, without those of the orders that a dead worker held: their time is told apart.
func (s *show) lags(rows []row) []time.Duration {
	var lags []time.Duration
	for i := range rows {
		if s.accident == nil || !slices.Contains(s.accident.orderIDs, rows[i].ID) {
			lags = append(lags, rows[i].PersistedAt.Sub(rows[i].AcceptedAt))
		}
	}
	return lags
}

func spread(times []time.Duration) Spread {
	if len(times) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(times))
	at := func(share float64) float64 {
		i := min(len(sorted)-1, int(share*float64(len(sorted))))
		return float64(sorted[i].Microseconds()) / 1000
	}
	return Spread{P50: at(0.50), P99: at(0.99), Max: at(1)}
}
