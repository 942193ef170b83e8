package entry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"sluice/httpapi/entry"
	"sluice/pipeline"
)

// stage is a service whose clock a test sets.
type stage struct {
	*entry.Service
	ring *entry.Ring
	at   time.Time
}

func newStage(t testing.TB, o entry.Options) *stage {
	t.Helper()
	s := &stage{ring: ringOf(t, keyOf("k1", 1)), at: noon}
	if o.Ring == nil {
		o.Ring = s.ring
	}
	o.Now = func() time.Time { return s.at }
	if o.Secret == nil {
		o.Secret = []byte("the secret of an installation")
	}
	var err error
	s.Service, err = entry.NewService(o)
	must(t, err)
	return s
}

// drop opens at noon.
func drop(spread time.Duration) *pipeline.Sale {
	return &pipeline.Sale{
		ID: "drop-1", Title: "Drop", Total: 10, MaxQuantity: 1, OpensAt: noon, ClosesAt: noon.Add(3 * time.Hour),
		State: pipeline.SaleActive, EntryTicket: true, EntrySpread: spread,
	}
}

func (s *stage) give(t testing.TB, sale *pipeline.Sale, user string) entry.Given {
	t.Helper()
	given, err := s.Give(context.Background(), sale, entry.Ask{UserID: user})
	must(t, err)
	return given
}

func earlyBy(err error) time.Duration {
	if early, ok := errors.AsType[*entry.NotYet](err); ok {
		return early.Left
	}
	return 0
}

// Those who asked before the opening are let in within the spread; those who asked in the moment of the opening, after
// all of them. A script that asks and orders at once at the opening is behind everybody who was there.
func TestWhoWasThereComesFirst(t *testing.T) {
	t.Parallel()
	const spread = 10 * time.Second
	s, sale := newStage(t, entry.Options{}), drop(spread)
	var lastThere, firstLate time.Time
	for i := range 200 {
		s.at = noon.Add(-time.Duration(i) * time.Second / 4)
		if i == 0 {
			s.at = noon.Add(-time.Millisecond)
		}
		given := s.give(t, sale, fmt.Sprint("there-", i))
		if given.NotBefore.Before(noon) || !given.NotBefore.Before(noon.Add(spread)) {
			t.Errorf("asked at %s: let in at %s", s.at, given.NotBefore)
		}
		if given.NotBefore.After(lastThere) {
			lastThere = given.NotBefore
		}
		s.at = noon
		late := s.give(t, sale, fmt.Sprint("late-", i))
		if late.NotBefore.Before(noon.Add(spread)) || !late.NotBefore.Before(noon.Add(2*spread)) {
			t.Errorf("asked at the opening: let in at %s", late.NotBefore)
		}
		if firstLate.IsZero() || late.NotBefore.Before(firstLate) {
			firstLate = late.NotBefore
		}
	}
	if !lastThere.Before(firstLate) {
		t.Errorf("the first who came late is let in at %s, before the last who was there at %s", firstLate, lastThere)
	}
	// Once both spreads are over, a new ticket is good at once.
	s.at = noon.Add(2 * spread)
	must(t, s.Check(sale, "eve", s.give(t, sale, "eve").Text))
	// Without a spread everybody is let in at the opening.
	s.at = noon.Add(-time.Minute)
	if given := s.give(t, drop(0), "ann"); !given.NotBefore.Equal(noon) {
		t.Errorf("without a spread: let in at %s", given.NotBefore)
	}
}

// Asking again changes nothing, neither at another api nor under another key; and turns are spread evenly.
func TestTurnsAreDrawnOnce(t *testing.T) {
	t.Parallel()
	s, sale := newStage(t, entry.Options{}), drop(10*time.Minute)
	s.at = noon.Add(-time.Minute)
	first := s.give(t, sale, "ann")
	s.at = noon.Add(-time.Second)
	must(t, s.ring.Replace([]entry.Key{keyOf("k2", 2), keyOf("k1", 1)}))
	other := newStage(t, entry.Options{Ring: ringOf(t, keyOf("k3", 3))})
	other.at = noon.Add(-time.Hour)
	for name, again := range map[string]entry.Given{
		"again": s.give(t, sale, "ann"), "elsewhere": other.give(t, sale, "ann"),
	} {
		if !again.NotBefore.Equal(first.NotBefore) {
			t.Errorf("%s: let in at %s, and before at %s", name, again.NotBefore, first.NotBefore)
		}
	}
	another := drop(10 * time.Minute)
	another.ID = "drop-2"
	if given := s.give(t, another, "ann"); given.NotBefore.Equal(first.NotBefore) {
		t.Error("the turn is the same in another sale")
	}
	const buyers, parts = 8000, 8
	var each [parts]int
	for i := range buyers {
		each[int(s.give(t, sale, fmt.Sprint("buyer-", i)).NotBefore.Sub(noon)*parts/(10*time.Minute))]++
	}
	for part, n := range each { // 1,000 each; 150 are five standard deviations
		if n < buyers/parts-150 || n > buyers/parts+150 {
			t.Errorf("%d of %d turns are in part %d of %d", n, buyers, part+1, parts)
		}
	}
}

func TestChecks(t *testing.T) {
	t.Parallel()
	s, sale := newStage(t, entry.Options{}), drop(10*time.Second)
	s.at = noon.Add(-time.Minute)
	given := s.give(t, sale, "ann")

	if early := earlyBy(s.Check(sale, "ann", given.Text)); early != given.NotBefore.Sub(s.at) {
		t.Errorf("a minute before the opening: early by %s, want %s", early, given.NotBefore.Sub(s.at))
	}
	s.at = given.NotBefore.Add(-time.Millisecond)
	if early := earlyBy(s.Check(sale, "ann", given.Text)); early != time.Millisecond {
		t.Errorf("a moment before the turn: early by %s", early)
	}
	s.at = given.NotBefore
	must(t, s.Check(sale, "ann", given.Text))
	must(t, s.Check(sale, "ann", given.Text)) // orders are limited, not tickets
	for name, c := range map[string]struct {
		user, text string
		want       error
	}{
		"no ticket":       {"ann", "", entry.ErrMissing},
		"another's":       {"bob", given.Text, entry.Forged},
		"something else":  {"ann", "hello", entry.Malformed},
		"of another sale": {"ann", s.give(t, &pipeline.Sale{ID: "drop-2", ClosesAt: noon.Add(time.Hour), EntryTicket: true}, "ann").Text, entry.Forged},
	} {
		if err := s.Check(sale, c.user, c.text); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	// The opening is moved: the ticket stays good, and its turn moves along.
	moved := drop(10 * time.Second)
	moved.OpensAt = noon.Add(time.Hour)
	if early := earlyBy(s.Check(moved, "ann", given.Text)); early != time.Hour {
		t.Errorf("an hour later: early by %s", early)
	}
	free := drop(0)
	free.EntryTicket = false
	must(t, s.Check(free, "ann", ""))
	must(t, s.ring.Replace(nil))
	if err := s.Check(sale, "ann", given.Text); !errors.Is(err, entry.ErrNoKeys) {
		t.Errorf("without keys: got %v", err)
	}
	must(t, s.Check(free, "ann", ""))
}

func TestWhenTicketsAreGiven(t *testing.T) {
	t.Parallel()
	s, sale := newStage(t, entry.Options{Lead: 2 * time.Hour}), drop(0)
	for at, want := range map[time.Time]error{
		noon.Add(-2 * time.Hour): nil, noon: nil, sale.ClosesAt.Add(-time.Millisecond): nil, sale.ClosesAt: entry.ErrOver,
	} {
		s.at = at
		if _, err := s.Give(t.Context(), sale, entry.Ask{UserID: "ann"}); !errors.Is(err, want) {
			t.Errorf("at %s: got %v, want %v", at, err, want)
		}
	}
	s.at = noon.Add(-2*time.Hour - time.Second)
	_, err := s.Give(t.Context(), sale, entry.Ask{UserID: "ann"})
	if early := earlyBy(err); early != time.Second {
		t.Errorf("too early: got %v, by %s", err, early)
	}
	s.at = noon
	closed := drop(0)
	closed.State = pipeline.SaleClosed
	if _, err := s.Give(t.Context(), closed, entry.Ask{UserID: "ann"}); !errors.Is(err, entry.ErrOver) {
		t.Errorf("closed: got %v", err)
	}
	free := drop(0)
	free.EntryTicket = false
	if _, err := s.Give(t.Context(), free, entry.Ask{UserID: "ann"}); !errors.Is(err, entry.ErrNotNeeded) {
		t.Errorf("not needed: got %v", err)
	}
	must(t, s.ring.Replace(nil))
	if _, err := s.Give(t.Context(), sale, entry.Ask{UserID: "ann"}); !errors.Is(err, entry.ErrNoKeys) || s.HasKeys() {
		t.Errorf("without keys: got %v", err)
	}
	for _, lead := range []time.Duration{time.Second, 13 * time.Hour, -time.Hour} {
		if _, err := entry.NewService(entry.Options{Lead: lead}); err == nil {
			t.Errorf("a lead of %s: taken", lead)
		}
	}
}
