package demo

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"sluice/internal/buyers"
)

// randomOptions are valid ones of any size.
func randomOptions(r *rand.Rand) Options {
	o := Options{Requests: minRequests + r.IntN(5000), Rate: 4000, Seed: r.Uint64()}
	o.Buyers = minStock + r.IntN(o.Requests/requestsPerBuyer-minStock+1)
	o.Stock = minStock + r.IntN(o.Buyers-minStock+1)
	return o.WithDefaults()
}

func TestPlanIsWhole(t *testing.T) {
	t.Parallel()
	seed := newSeed()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		o := randomOptions(r)
		if err := o.Validate(); err != nil {
			t.Fatal(err)
		}
		p := newPlan(o)
		if got := p.requests(); got != o.Requests {
			t.Fatalf("%+v: got %d requests, want %d", o, got, o.Requests)
		}
		if !reflect.DeepEqual(p, newPlan(o)) {
			t.Fatalf("%+v: the same options gave another plan", o)
		}
		asked := map[uint32]bool{}
		for _, a := range p.rush {
			asked[a.Buyer] = true
		}
		if len(asked) != o.Buyers {
			t.Fatalf("%+v: %d buyers ask in the rush, want all %d", o, len(asked), o.Buyers)
		}
		if a := givenUpForGood(p); a != nil {
			t.Fatalf("%+v: %+v is given up and never asked again", o, *a)
		}
	}
}

// givenUpForGood finds an abandoned request that its client does not repeat later.
func givenUpForGood(p plan) *buyers.Request {
	type question struct {
		buyer uint32
		key   int16
	}
	later := map[question]bool{}
	for i := len(p.rush) - 1; i >= 0; i-- {
		a := p.rush[i]
		switch q := (question{a.Buyer, a.Key}); {
		case !a.Abandon:
			later[q] = true
		case !later[q]:
			return &a
		}
	}
	return nil
}

// A demo of the usual size has all that it promises.
func TestPlanHasEveryKindOfBuyer(t *testing.T) {
	t.Parallel()
	p := newPlan(Options{Seed: 1}.WithDefaults())
	var abandoned, sameKey, otherKey int
	seen := map[uint32]bool{}
	for _, a := range p.rush {
		switch {
		case a.Abandon:
			abandoned++
		case a.Key > 0:
			otherKey++
		case seen[a.Buyer]:
			sameKey++
		}
		seen[a.Buyer] = true
	}
	if abandoned < 500 || sameKey < 3000 || otherKey < 3000 || len(p.early) != 200 || len(p.late) != 400 {
		t.Errorf("got %d abandoned, %d with the same key, %d with another, %d early, %d late: too few of some",
			abandoned, sameKey, otherKey, len(p.early), len(p.late))
	}
}

func TestPace(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		requests, rate int
		least, most    time.Duration
	}{
		{20_000, 4000, 5 * time.Second, 7 * time.Second},
		{2000, 4000, 4 * time.Second, 6 * time.Second}, // small, and still long enough for a kill
		{100_000, 50_000, 4 * time.Second, 6 * time.Second},
	} {
		p := newPace(test.requests, test.rate)
		var at time.Duration
		for range test.requests {
			at += p.gap(0, at)
		}
		if at < test.least || at > test.most {
			t.Errorf("%d requests at %d/s take %s, want %s to %s", test.requests, test.rate, at, test.least, test.most)
		}
		if expected := p.takes(test.requests); (expected - at).Abs() > at/5 {
			t.Errorf("%d requests at %d/s take %s, expected were %s", test.requests, test.rate, at, expected)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	o := Options{}.WithDefaults()
	if o.PayWithin < 10*time.Second || o.PayWithin > 15*time.Second {
		t.Errorf("buyers have %s to pay, want the length of the rush and 7 s", o.PayWithin)
	}
	if o.Requests != 20_000 || o.Buyers != 8000 || o.Stock != 1000 || o.Seed == 0 {
		t.Errorf("got %+v, want the sale of the manual", o)
	}
	if err := o.Validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	for _, wrong := range []Options{
		{Requests: 199},
		{Requests: 1_000_001},
		{Stock: 9},
		{Stock: 8001},
		{Buyers: 999},
		{Buyers: 10_001},
		{Rate: 99},
		{Rate: 50_001},
		{Requests: -1},
		{Buyers: -1},
		{Stock: -1},
		{Rate: -1},
		{PayWithin: -time.Second},
		{PayWithin: 999 * time.Millisecond},
		{PayWithin: 25 * time.Hour},
	} {
		if err := wrong.WithDefaults().Validate(); err == nil {
			t.Errorf("%+v is accepted", wrong)
		}
	}
}
