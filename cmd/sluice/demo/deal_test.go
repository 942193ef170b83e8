package demo

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// Every order has one fate, also in the smallest sale; what the dead worker held is paid first.
func TestDeal(t *testing.T) {
	t.Parallel()
	seed := newSeed()
	t.Logf("seed %d", seed)
	for stock := minStock; stock < 300; stock += 7 {
		owners := map[string]int{}
		for buyer := range stock {
			owners[orderOf(buyer)] = buyer
		}
		held := []string{orderOf(3), orderOf(5), "not among them"}
		random := func() *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }
		pledges := deal(random(), owners, held)
		if !reflect.DeepEqual(pledges, deal(random(), owners, held)) {
			t.Fatalf("stock %d: the same seed gave other fates", stock)
		}
		count := map[fate]int{}
		dealt := map[string]int{}
		for i, p := range pledges {
			count[p.fate]++
			dealt[p.orderID] = p.buyer
			if first := i < 2; first != slices.Contains(held, p.orderID) || first && p.fate != pays {
				t.Errorf("stock %d: at %d is %+v", stock, i, p)
			}
		}
		if !reflect.DeepEqual(dealt, owners) || len(pledges) != stock {
			t.Errorf("stock %d: got %v, want every order once", stock, pledges)
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

func TestReadReply(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]reply{
		`{"outcome":"paid","order_id":"o1","order_status":"paid"}`: {status: 200, orderID: "o1", outcome: "paid"},
		`{"order_id":"o1","status":"waiting","position":3}`:        {status: 200, orderID: "o1", state: "waiting", position: 3},
		`{"code":"sold-out","status":409}`:                         {status: 200, code: "sold-out"},
		``:                                                         {status: 200},
	} {
		want.body = body
		if got, err := readReply(200, []byte(body)); err != nil || got != want {
			t.Errorf("%q: got %+v, %v, want %+v", body, got, err, want)
		}
	}
	if got, err := readReply(200, []byte("sold out")); err == nil {
		t.Errorf("got %+v, want an error", got)
	}
	for status, want := range map[int]bool{0: false, 200: true, 204: true, 409: true, 422: true, 429: false, 500: false, 503: false} {
		if got := (reply{status: status}).decided(); got != want {
			t.Errorf("%d: got %v, want %v", status, got, want)
		}
	}
}
