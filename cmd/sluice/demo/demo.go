package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"sluice/internal/buyers"
	"sluice/internal/table"
	"sluice/pipeline"
	"sluice/pipeline/audit"
)

// Result is what a demo has shown.
type Result struct {
	OK          bool           `json:"ok"`
	Seed        uint64         `json:"seed"`
	Stock       int            `json:"stock"`
	Buyers      int            `json:"buyers"`
	Requests    int            `json:"requests"` // sent
	Repeated    int            `json:"repeated"` // of them because there had been no answer
	Abandoned   int            `json:"abandoned"`
	Answers     map[string]int `json:"answers"` // by code
	Replays     int            `json:"replays"` // 202s that repeated an earlier one
	PerSecond   float64        `json:"requests_per_second"`
	Latency     Spread         `json:"latency_ms"` // from request to answer, as the clients saw it
	PersistLag  Spread         `json:"persist_lag_ms"`
	Kill        *WorkerKill    `json:"accident"`
	Node        *NodeKill      `json:"node_accident,omitempty"`
	Ends        Ends           `json:"ends"`
	Left        int            `json:"left"`     // units that are for sale in the end
	Payments    map[string]int `json:"payments"` // answers to the payment provider, by outcome or code
	Waiters     int            `json:"waiters"`  // who joined the waitlist
	Leavers     int            `json:"leavers"`  // of them who left again
	Checks      []buyers.Check `json:"checks"`
	Audit       *audit.Report  `json:"-"`
	Complaints  []string       `json:"complaints,omitempty"` // of the API and the workers
	TookSeconds float64        `json:"took_seconds"`
}

// Spread is how long something took, in milliseconds.
type Spread struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Run does the whole demo and narrates it to out. The result is there whenever the sale was; an error says why the
// demo could not go on. Everything that was started is gone when it returns.
func Run(ctx context.Context, o Options, out io.Writer) (result *Result, err error) {
	o = o.WithDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := newSession(o, out)
	defer func() {
		err = errors.Join(err, s.close(context.WithoutCancel(ctx)))
	}()
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	if err := s.sell(ctx); err != nil {
		return nil, err
	}
	return s.prove(ctx)
}

// sell is everything up to the proof.
func (s *session) sell(ctx context.Context) error {
	for _, phase := range []func(context.Context) error{s.announce, s.rush, s.awaitExpiry, s.end} {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	return nil
}

// prove compares what buyers were answered with what Postgres and Redis have, and audits.
func (s *session) prove(ctx context.Context) (*Result, error) {
	s.narrator.chapterf("The proof: what %s buyers and the payment provider were told, against what Postgres and Redis hold", number(s.opts.Buyers))
	reading, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	stores, err := buyers.Reader{Postgres: s.ledger.pool, Redis: s.redis, Sales: []string{saleID}}.Read(reading)
	if err != nil {
		return nil, fmt.Errorf("read the orders and payments: %w", err)
	}
	ends, err := s.ledger.ends(ctx)
	if err != nil {
		return nil, fmt.Errorf("count the orders: %w", err)
	}
	proof := buyers.Prove(s.history, stores,
		buyers.Terms{Answered: true, Stock: s.opts.Stock, Price: unitPrice, Currency: currency})
	left, err := s.nothingLeft(ctx)
	if err != nil {
		return nil, err
	}
	audit, err := audit.NewAuditor(s.redis, pipeline.DefaultKeys, s.store).Audit(ctx, s.sale)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	tally := s.history.Tally()
	r := &Result{
		Seed: s.opts.Seed, Stock: s.opts.Stock, Buyers: s.opts.Buyers, Requests: tally.Requests, Repeated: tally.Repeated,
		Abandoned: tally.Abandoned, Answers: map[string]int{}, Replays: tally.Replays,
		PerSecond: float64(len(s.plan.rush)) / s.rushTook.Seconds(), Latency: spread(s.history.Latencies()),
		PersistLag: spread(s.lags(stores.Orders)), Kill: s.killed, Ends: ends, Left: stores.Stock(saleID),
		Payments: s.history.Payments(), Checks: append(proof.Checks(), s.killed.takenOver(), left), Audit: audit,
		TookSeconds: time.Since(s.narrator.began).Seconds(),
	}
	if s.node != nil {
		r.Node = s.node
		r.Checks = append(r.Checks, s.nodeCheck(ctx))
	}
	r.Waiters, r.Leavers = s.history.Waitlist()
	for outcome, n := range tally.Outcomes {
		if o := buyers.Outcome(outcome); n > 0 && o.Definite() {
			r.Answers[o.Code()] = n
		}
	}
	for _, line := range s.warnings.Lines("") {
		r.Complaints = append(r.Complaints, table.Printable(line))
	}
	r.OK = audit.Clean() && !slices.ContainsFunc(r.Checks, func(c buyers.Check) bool { return !c.OK })
	return r, nil
}

// readLimit bounds the reading of the stores: a million rows take seconds.
const readLimit = time.Minute

func (s *session) nothingLeft(ctx context.Context) (buyers.Check, error) {
	length, pending, err := s.queue(ctx)
	return buyers.Check{
		Name: "nothing is left in the stream", OK: length == 0 && pending == 0,
		Detail: fmt.Sprintf("%d events, %d pending", length, pending),
	}, err
}

// lags are the times from accept to row, without those of the orders of the dead worker: their time is reported apart.
func (s *session) lags(orders []buyers.Order) []time.Duration {
	var lags []time.Duration
	for i := range orders {
		if s.killed == nil || !slices.Contains(s.killed.orders, orders[i].ID) {
			lags = append(lags, orders[i].PersistedAt.Sub(orders[i].AcceptedAt))
		}
	}
	return lags
}

func spread(times []time.Duration) Spread {
	if len(times) == 0 {
		return Spread{}
	}
	slices.Sort(times)
	at := func(share float64) float64 {
		i := min(len(times)-1, int(share*float64(len(times))))
		return float64(times[i].Microseconds()) / 1000
	}
	return Spread{P50: at(0.50), P99: at(0.99), Max: at(1)}
}
