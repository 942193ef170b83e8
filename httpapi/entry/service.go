package entry

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/pipeline"
)

// Limits of how long before the opening tickets are given. The most is half of Life.
const (
	DefaultLead = time.Hour
	MinLead     = time.Minute
	MaxLead     = Life / 2
)

// Options are what a Service works with. The zero Options make one without keys, which gives and takes no ticket.
type Options struct {
	Ring   *Ring         // nil: no key
	Lead   time.Duration // how long before the opening tickets are given; 0: DefaultLead
	Hook   HookOptions   // the shop's own check; without a URL there is none
	Secret []byte        // from which turns are drawn, the same at all apis; nil: one of this process

	Now     func() time.Time      // nil: time.Now. The clock by which sales open, as far as it is known
	Metrics prometheus.Registerer // nil: the metrics are kept but not exported
	Log     *slog.Logger          // nil: nothing is logged
}

// Service gives and checks entry tickets. It may be used from many goroutines at once.
type Service struct {
	ring    *Ring
	lead    time.Duration
	hook    *hook // nil: none
	turns   turns
	now     func() time.Time
	metrics *metrics
}

// What a Service answers besides a Flaw, NotYet and Refused.
var (
	ErrNoKeys    = errors.New("this api has no keys for entry tickets")
	ErrNotNeeded = errors.New("orders of this sale need no entry ticket")
	ErrOver      = errors.New("the sale is over")
	ErrMissing   = errors.New("orders of this sale need an entry ticket")
	ErrNoAnswer  = errors.New("the check in front of the sale gave no answer")
)

// NotYet says that it is too early, for a ticket to be given or to be good.
type NotYet struct {
	NotBefore time.Time
	Left      time.Duration // until then, above 0
}

func (e *NotYet) Error() string { return "not before " + pipeline.FormatTime(e.NotBefore) }

// NewService returns a service. Errors: an option that breaks a rule.
func NewService(o Options) (*Service, error) {
	if o.Ring == nil {
		o.Ring = &Ring{}
	}
	if o.Lead == 0 {
		o.Lead = DefaultLead
	}
	if o.Lead < MinLead || o.Lead > MaxLead {
		return nil, fmt.Errorf("tickets can't be given %s before the opening: use %s to %s", o.Lead, MinLead, MaxLead)
	}
	if o.Secret == nil {
		o.Secret = []byte(rand.Text())
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	drawn, err := newTurns(o.Secret)
	if err != nil {
		return nil, err
	}
	m := newMetrics(o.Metrics)
	asked, err := newHook(o.Hook, m, o.Log)
	return &Service{ring: o.Ring, lead: o.Lead, hook: asked, turns: drawn, now: o.Now, metrics: m}, err
}

// Given is a ticket as its buyer gets it.
type Given struct {
	Text      string
	NotBefore time.Time // for the opening that the sale has now
	ExpiresAt time.Time
}

// Give gives a ticket for a sale, after the shop's own check. What counts is when the buyer asked, not how long the
// check took. Errors: ErrNoKeys, ErrNotNeeded, ErrOver, *NotYet, *Refused, ErrNoAnswer, those of ask.Bound.
func (s *Service) Give(ctx context.Context, sale *pipeline.Sale, ask Ask) (Given, error) {
	asked := s.now()
	begins := sale.OpensAt.Add(-s.lead)
	switch {
	case !sale.EntryTicket:
		return Given{}, ErrNotNeeded
	case s.ring.Empty():
		return Given{}, ErrNoKeys
	case sale.Phase(asked) == "closed":
		return Given{}, ErrOver
	case asked.Before(begins):
		return Given{}, &NotYet{begins, begins.Sub(asked)}
	}
	ask.SaleID = sale.ID
	if s.hook != nil {
		if err := s.hook.ask(ctx, &ask); err != nil {
			s.metrics.notGiven(err)
			return Given{}, err
		}
	}
	t := Ticket{asked.UTC().Truncate(time.Millisecond), s.turns.of(sale.ID, ask.UserID)}
	text, err := s.ring.Sign(t, sale.ID, ask.UserID)
	if err != nil { // the last key was taken out a moment ago
		return Given{}, ErrNoKeys
	}
	s.metrics.given.Inc()
	return Given{text, t.NotBefore(sale), t.ExpiresAt()}, nil
}

// Check returns nil where a buyer may order: the sale asks for no ticket, or the text is one of this buyer and its time
// has come. It asks nobody. Errors: ErrNoKeys, ErrMissing, Flaw, *NotYet.
func (s *Service) Check(sale *pipeline.Sale, userID, text string) error {
	if !sale.EntryTicket {
		return nil
	}
	err := s.check(sale, userID, text)
	s.metrics.checked(err)
	return err
}

func (s *Service) check(sale *pipeline.Sale, userID, text string) error {
	switch {
	case s.ring.Empty():
		return ErrNoKeys
	case text == "":
		return ErrMissing
	}
	now := s.now()
	t, err := s.ring.Verify(text, sale.ID, userID, now)
	if err != nil {
		return err
	}
	if from := t.NotBefore(sale); now.Before(from) {
		return &NotYet{from, from.Sub(now)}
	}
	return nil
}

// ReplaceKeys puts other keys in the place of those that there are: see Ring.Replace.
func (s *Service) ReplaceKeys(keys []Key) error { return s.ring.Replace(keys) }

// HasKeys reports whether tickets can be given.
func (s *Service) HasKeys() bool { return !s.ring.Empty() }
