package chaos

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestPlans checks the rules of a plan for any seed and length.
func TestPlans(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := Options{
			Seed: rapid.Uint64Min(1).Draw(t, "seed"), Lossless: rapid.Bool().Draw(t, "lossless"),
			Duration: time.Duration(rapid.IntRange(60, 1200).Draw(t, "seconds")) * time.Second,
			Topology: rapid.SampledFrom(topologies).Draw(t, "topology"),
		}.WithDefaults()
		plan := newPlan(o)
		if again := newPlan(o); !reflect.DeepEqual(plan, again) {
			t.Fatal("the same seed gave two plans")
		}
		turns := map[kind]int{}
		var last time.Duration
		for i, s := range plan {
			turns[s.Kind]++
			if s.Number != i+1 || s.At < max(last, planLead) || s.At+s.For > o.Duration-planTail {
				t.Fatalf("%s is out of order or beyond the end", s)
			}
			if trait := traits[s.Kind]; s.For < trait.min || s.For > trait.max && !trait.away {
				t.Fatalf("%s: it lasts too long or not long enough", s)
			}
			if !o.takes(s.Kind) {
				t.Fatalf("%s: nobody asked for it", s)
			}
			if traits[s.Kind].loses != strings.HasPrefix(s.Worker, "worker-") {
				t.Fatalf("%s has %q as the worker with events in flight", s, s.Worker)
			}
			last = s.At
			checkPair(t, plan, s)
		}
		for _, k := range kinds {
			if turns[k] == 0 && o.needs(k) {
				t.Fatalf("%s of %s never happens", k, o.Duration)
			}
		}
	})
}

// checkPair checks the rules between a fault and the one during which it begins.
func checkPair(t *rapid.T, plan []step, s step) {
	if s.During == 0 {
		for _, before := range plan[:s.Number-1] {
			if before.At+before.For > s.At {
				t.Fatalf("%s begins before %s is over", s, before)
			}
		}
		return
	}
	first := plan[s.During-1]
	if first.During != 0 || s.At > first.At+first.on() {
		t.Fatalf("%s begins when %s is over, or no first one", s, first)
	}
	for _, other := range plan[s.During-1 : s.Number-1] {
		on := other.Number == first.Number || other.At+other.on() > s.At
		if on && slices.ContainsFunc(s.occupies(), func(name string) bool {
			return slices.Contains(other.occupies(), name)
		}) {
			t.Fatalf("%s and %s strike one process at once", other, s)
		}
	}
}

// TestLongRunsHaveLongFaults: in ten minutes both stores are away for longer than every timeout, and meet other faults
// meanwhile. All classes that can meet do, and each pair of classes about as often as any other.
func TestLongRunsHaveLongFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		o := Options{Seed: seed + 1, Duration: 10 * time.Minute}.WithDefaults()
		plan := newPlan(o)
		away := map[class]int{}
		met := map[[2]class]bool{}
		for _, s := range plan {
			if s.During == 0 {
				continue
			}
			first := plan[s.During-1]
			met[[2]class{traits[first.Kind].class, traits[s.Kind].class}] = true
			if first.For >= 2*time.Minute {
				away[traits[first.Kind].class]++
			}
		}
		if away[redisAway] < 10 || away[postgresAway] < 10 {
			t.Errorf("seed %d: %v faults while a store is away for two minutes, want ten at least for each", o.Seed, away)
		}
		t.Logf("seed %d: %d faults, %d pairs of classes", o.Seed, len(plan), len(met))
	}
}

func TestOnlyOnePair(t *testing.T) {
	t.Parallel()
	o := Options{Seed: 1, Pair: "FLUSHALL/kill -9 of an API"}.WithDefaults()
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, s := range newPlan(o) {
		if want := map[bool]kind{true: flushAll, false: killAPI}[s.During == 0]; s.Kind != want {
			t.Errorf("%s: want %s", s, want)
		}
	}
	for _, wrong := range []string{
		"nonsense", "poison entries", "FLUSHALL/nonsense", "FLUSHALL/kill -9 of Redis", "poison entries/FLUSHALL",
	} {
		if (Options{Pair: wrong}).WithDefaults().Validate() == nil {
			t.Errorf("%q was taken", wrong)
		}
	}
}

func TestOnlyOneKind(t *testing.T) {
	t.Parallel()
	o := Options{Seed: 1, Pair: "FLUSHALL"}.WithDefaults()
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	plan := newPlan(o)
	for _, s := range plan {
		if s.Kind != flushAll || s.During != 0 {
			t.Errorf("%s: want FLUSHALL alone", s)
		}
	}
	if len(plan) < 3 {
		t.Errorf("got %d faults, want several", len(plan))
	}
}

func TestCalmPlanIsEmpty(t *testing.T) {
	t.Parallel()
	if plan := newPlan(Options{Calm: true, Duration: time.Minute, Seed: 1}); len(plan) != 0 {
		t.Errorf("got %v, want no faults", plan)
	}
}

func TestPlansDiffer(t *testing.T) {
	t.Parallel()
	a, b := newPlan(Options{Seed: 1}.WithDefaults()), newPlan(Options{Seed: 2}.WithDefaults())
	if reflect.DeepEqual(a, b) {
		t.Error("two seeds gave one plan")
	}
}
