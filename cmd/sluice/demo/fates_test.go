package demo

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// Every order has one fate, also in the smallest sale; what the dead worker had in flight is paid first.
func TestFates(t *testing.T) {
	t.Parallel()
	seed := newSeed()
	t.Logf("seed %d", seed)
	for stock := minStock; stock < 300; stock += 7 {
		owners := map[string]uint32{}
		for buyer := range uint32(stock) {
			owners[orderOf(buyer)] = buyer
		}
		inFlight := []string{orderOf(3), orderOf(5), "not among them"}
		random := func() *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }
		endings := assignFates(random(), owners, inFlight)
		if !reflect.DeepEqual(endings, assignFates(random(), owners, inFlight)) {
			t.Fatalf("stock %d: the same seed gave other fates", stock)
		}
		count := map[fate]int{}
		assigned := map[string]uint32{}
		for i, e := range endings {
			count[e.fate]++
			assigned[e.order] = e.buyer
			if first := i < 2; first != slices.Contains(inFlight, e.order) || first && e.fate != pays {
				t.Errorf("stock %d: at %d is %+v", stock, i, e)
			}
		}
		if !reflect.DeepEqual(assigned, owners) || len(endings) != stock {
			t.Errorf("stock %d: got %v, want every order once", stock, endings)
		}
		for f := pays; f <= forgets; f++ {
			if count[f] == 0 {
				t.Errorf("stock %d: nobody has fate %d", stock, f)
			}
		}
		if stock > 100 && count[pays]+count[paysTwice]+count[paysRenamed] < stock*3/4 {
			t.Errorf("stock %d: most do not pay: %v", stock, count)
		}
	}
}

func orderOf(buyer uint32) string { return fmt.Sprintf("order-%d", buyer) }
