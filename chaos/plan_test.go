package chaos

import (
	"reflect"
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
			Duration: time.Duration(rapid.IntRange(60, 600).Draw(t, "seconds")) * time.Second,
		}.WithDefaults()
		plan := newPlan(o)
		if again := newPlan(o); !reflect.DeepEqual(plan, again) {
			t.Fatal("the same seed gave two plans")
		}
		hits := map[kind]int{}
		var last time.Duration
		for i, s := range plan {
			hits[s.Kind]++
			if s.Number != i+1 || s.At < max(last, planLead) || s.At+s.For > o.Duration-planTail {
				t.Fatalf("%s is out of order or beyond the end", s)
			}
			if trait := traits[s.Kind]; s.For < trait.min || s.For > trait.max {
				t.Fatalf("%s: it lasts too long or not long enough", s)
			}
			if traits[s.Kind].loses && o.Lossless {
				t.Fatalf("%s: nothing was to be lost", s)
			}
			if traits[s.Kind].loses != strings.HasPrefix(s.Worker, "worker-") {
				t.Fatalf("%s has %q as the worker with events in flight", s, s.Worker)
			}
			last = s.At
		}
		for _, k := range kinds {
			if hits[k] == 0 && !(o.Lossless && traits[k].loses) {
				t.Fatalf("%s of %s never happens", k, o.Duration)
			}
		}
		for i := range plan {
			for j := range plan[:i] {
				apart(t, plan[j], plan[i])
			}
		}
	})
}

// apart checks the rules between two faults.
func apart(t *rapid.T, a, b step) {
	if strikes(a, b) && b.At < a.At+a.For {
		t.Fatalf("%s and %s strike one process at once", a, b)
	}
	for _, pair := range [][2]step{{a, b}, {b, a}} {
		loss, other := pair[0], pair[1]
		touches := strings.HasPrefix(struck(other), "api-") || struck(other) == loss.Worker
		if traits[loss.Kind].loses && touches && other.At < loss.At+loss.For+lossTail &&
			loss.At-lossLead < other.At+other.For {
			t.Fatalf("%s touches a process that remembers before %s", other, loss)
		}
	}
}

// strikes reports whether two faults strike the same process or server.
func strikes(a, b step) bool { return struck(a) == struck(b) }

func struck(s step) string {
	from, to, link := strings.Cut(s.Target, ">")
	if link && from == "buyers" {
		return to
	}
	return from
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
