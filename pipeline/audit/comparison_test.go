package audit

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"sluice/pipeline"
)

// sample is what one comparison is told: slots, then orders and releases.
type sample struct {
	slots, late, orders, releases []fingerprint
}

func (s *sample) tell(c comparison) {
	for _, f := range s.slots {
		c.slot(f, false)
	}
	for _, f := range s.late {
		c.slot(f, true)
	}
	for _, f := range s.orders {
		c.order(f)
	}
	for _, f := range s.releases {
		c.release(f)
	}
}

// compared is what an audit makes of it: the slots, those without an order, and the orders without a slot.
func (s *sample) compared(most int64) (slots, strays, lost int64, held int) {
	sums := &survey{}
	s.tell(sums)
	slots, _ = sums.agreed()
	for _, c := range sums.scrutinies(most) {
		s.tell(c)
		n, found := c.result()
		slots, strays, lost, held = slots+n, strays+int64(len(found)), lost+c.lost, max(held, len(c.held))
	}
	return slots, strays, lost, held
}

func accepts(prints *fingerprints, name string, n int) []fingerprint {
	all := make([]fingerprint, n)
	for i := range all {
		all[i] = prints.of(pipeline.Partition(i%3), fmt.Sprint("order-", name, i), fmt.Sprint("buyer-", i))
	}
	return all
}

func TestCompare(t *testing.T) {
	t.Parallel()
	prints := newFingerprints()
	right, other := accepts(prints, "right", 1000), accepts(prints, "other", 1000)
	none := []fingerprint{}
	for _, test := range []struct {
		name                string
		sample              sample
		slots, strays, lost int64
	}{
		{"nothing", sample{}, 0, 0, 0},
		{"all agree", sample{slots: right, orders: right}, 1000, 0, 0},
		{"slots that come twice", sample{slots: append(right[:10:10], right...), orders: right}, 1000, 0, 0},
		{"slots without orders", sample{slots: append(right, other[:5]...), orders: right}, 1005, 5, 0},
		{"orders without slots", sample{slots: right[7:], orders: right}, 993, 0, 7},
		{"other orders", sample{slots: other, orders: right}, 1000, 1000, 1000},
		{"no slots at all", sample{slots: none, orders: right}, 0, 0, 1000},
		{"no orders at all", sample{slots: right}, 1000, 1000, 0},
		{"releases to come", sample{slots: right, orders: right[3:], releases: right[:3]}, 1000, 0, 0},
		{"an order with two releases", sample{
			slots: right, orders: right[1:],
			releases: append(right[:1:1], right[0]),
		}, 1000, 0, 0},
		{"slots taken meanwhile", sample{slots: right, late: other, orders: right}, 1000, 0, 0},
		{"an order whose slot was taken anew", sample{slots: right[1:], late: right[:1], orders: right}, 999, 0, 0},
	} {
		for _, most := range []int64{mostHeld, 100, 1} {
			slots, strays, lost, _ := test.sample.compared(most)
			if slots != test.slots || strays != test.strays || lost != test.lost {
				t.Errorf("%s, %d held: got %d slots, %d strays, %d lost, want %d, %d, %d", test.name, most, slots, strays, lost,
					test.slots, test.strays, test.lost)
			}
		}
	}
}

// However much is wrong, only so much of it is held at once.
func TestAScrutinyIsBounded(t *testing.T) {
	t.Parallel()
	prints := newFingerprints()
	all := sample{slots: accepts(prints, "slot", 50_000), orders: accepts(prints, "row", 50_000)}
	slots, strays, lost, held := all.compared(5000)
	if slots != 50_000 || strays != 50_000 || lost != 50_000 || held > 5000 {
		t.Errorf("got %d slots, %d strays, %d lost, %d held at once; want all of them, at most 5000 held", slots, strays,
			lost, held)
	}
}

// Slots and orders are distinguished by the partition, the order and the buyer, and by where one ends and the next
// begins.
func TestFingerprints(t *testing.T) {
	t.Parallel()
	prints := newFingerprints()
	seen := map[fingerprint]string{}
	for _, accept := range []struct {
		p           pipeline.Partition
		order, user string
	}{{1, "a", "b"}, {2, "a", "b"}, {1, "b", "a"}, {1, "ab", ""}, {1, "", "ab"}, {1, "a", "bb"}, {1, "aa", "b"}} {
		f, name := prints.of(accept.p, accept.order, accept.user), fmt.Sprint(accept)
		if was, ok := seen[f]; ok {
			t.Errorf("%s and %s have one fingerprint", was, name)
		}
		if seen[f] = name; prints.of(accept.p, accept.order, accept.user) != f {
			t.Errorf("%s: another fingerprint the second time", name)
		}
		if newFingerprints().of(accept.p, accept.order, accept.user) == f {
			t.Errorf("%s: the same fingerprint under another key", name)
		}
	}
}

// Sums forget the order, and what is subtracted is what was added, across the carry too.
func TestSumsOfFingerprints(t *testing.T) {
	t.Parallel()
	const seed = 20261122
	random := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // a test that can be repeated
	all := make([]fingerprint, 1000)
	var sum fingerprint
	for i := range all {
		all[i] = fingerprint{random.Uint64(), random.Uint64()}
		sum = sum.plus(all[i])
	}
	random.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	for i, f := range all {
		if sum == (fingerprint{}) {
			t.Fatalf("seed %d: zero with %d left", seed, len(all)-i)
		}
		sum = sum.minus(f)
	}
	if sum != (fingerprint{}) {
		t.Errorf("seed %d: got %+v, want nothing", seed, sum)
	}
	if got := (fingerprint{0, ^uint64(0)}).plus(fingerprint{0, 1}); got != (fingerprint{1, 0}) {
		t.Errorf("got %+v, want the carry in the upper half", got)
	}
}
