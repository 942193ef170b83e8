package admission_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/pipelinetest"
)

const (
	remembered = "sluice_admission_remembered_total"
	// forgotten is longer than anything remembered is used.
	forgotten = 2 * admission.RefusalAge
)

// flooded is a rig whose sale is refusing a flood from memory.
type flooded struct {
	*pipelinetest.Rig
	next atomic.Int64
}

func newFlooded(t *testing.T, o pipelinetest.Options) *flooded {
	t.Helper()
	return &flooded{Rig: pipelinetest.New(t, o)}
}

// newcomer orders as somebody who was never seen before.
func (f *flooded) newcomer() (admission.Result, error) {
	d, err := f.Try(pipeline.OrderRequest{UserID: fmt.Sprint("newcomer-", f.next.Add(1)), Quantity: 1})
	return d.Result, err
}

// floods has newcomers refused until that needs no Redis.
func (f *flooded) floods(want admission.Result) {
	f.Helper()
	testkit.Eventually(f.T, pipelinetest.CallLimit, "refusals need no Redis", func() bool {
		before := f.Count(remembered)
		f.crowd(want)
		return f.Count(remembered) >= before+50
	})
}

// crowd has a hundred newcomers refused at once, so that they are a flood on a busy machine, too.
func (f *flooded) crowd(want admission.Result) {
	f.Helper()
	pipelinetest.Together(100, func(int) {
		if got, err := f.newcomer(); err != nil || got != want {
			f.Errorf("a newcomer: got %q, %v, want %q", got, err, want)
		}
	})
}

// A sale that is sold out refuses newcomers from memory; buyers who have an order get the same answer as before.
func TestASoldOutSaleNeedsNoRedis(t *testing.T) {
	t.Parallel()
	f := newFlooded(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 3, MaxQuantity: 2}})
	f.Admit("ann", 1)
	bob := pipeline.OrderRequest{UserID: "bob", Quantity: 2, IdempotencyKey: "key"}
	first, err := f.Try(bob)
	if err != nil || first.Result != admission.Accepted {
		t.Fatalf("bob: %+v, %v", first, err)
	}
	f.floods(admission.SoldOut)

	for _, test := range []struct {
		who     string
		request pipeline.OrderRequest
		want    admission.Result
	}{
		{"a holder", pipeline.OrderRequest{UserID: "ann", Quantity: 1}, admission.AlreadyOrdered},
		{"a holder with the same key", bob, admission.Replayed},
		{"a holder with the key for more", pipeline.OrderRequest{
			UserID: "bob", Quantity: 1, IdempotencyKey: "key",
		}, admission.KeyReused},
		{"a newcomer who wants too many", pipeline.OrderRequest{UserID: "cy", Quantity: 3}, admission.OverLimit},
		{"a newcomer", pipeline.OrderRequest{UserID: "cy", Quantity: 2}, admission.SoldOut},
	} {
		if got, err := f.Try(test.request); err != nil || got.Result != test.want {
			t.Errorf("%s: got %q, %v, want %q", test.who, got.Result, err, test.want)
		}
	}
	if again, err := f.Try(bob); err != nil || again.Receipt.OrderID != first.Receipt.OrderID {
		t.Errorf("the same key: got order %s, %v, want %s", again.Receipt.OrderID, err, first.Receipt.OrderID)
	}
}

// A unit that is given back is sold in the middle of a flood, and nobody is told sold-out by what was known before for
// longer than the bound.
func TestAUnitThatIsGivenBackIsSoldDuringAFlood(t *testing.T) {
	t.Parallel()
	f := newFlooded(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 2, MaxQuantity: 1}})
	orders := map[string]string{}
	for _, user := range []string{"ann", "bob"} {
		orders[user] = f.Admit(user, 1).OrderID
	}
	f.floods(admission.SoldOut)
	for user, order := range orders {
		f.Release(user, order)
		released := time.Now()
		for {
			asked := time.Since(released)
			got, err := f.newcomer()
			if err != nil {
				t.Fatal(err)
			}
			if got == admission.Accepted {
				t.Logf("sold again after %s", asked)
				break
			}
			if asked > admission.RefusalAge {
				t.Fatalf("a newcomer who asked %s after the unit was free: got %q", asked, got)
			}
		}
		f.floods(admission.SoldOut)
	}
	if left := f.Stock(f.Sale); left != 0 {
		t.Errorf("%d units are left", left)
	}
}

// Whatever happens to a sale: what is answered from memory is what Redis answers. The other controller has seen no
// flood, and asks Redis for everybody.
func TestMemoryAgreesWithRedis(t *testing.T) {
	t.Parallel()
	f := newFlooded(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 20, MaxQuantity: 3}})
	random := rand.New(rand.NewPCG(1, 2))
	other := f.NewAdmission(f.Redis, admission.Options{})
	hash := f.Keys.Sale(f.Sale.Partitions[0], f.Sale.ID)
	held := map[string]string{}
	changes := map[string]func(){
		"nothing": func() {},
		"release": func() {
			for user, order := range held {
				f.Release(user, order)
				delete(held, user)
				return
			}
		},
		"release all": func() {
			for user, order := range held {
				f.Release(user, order)
			}
			clear(held)
		},
		"pause":  func() { f.Redis.HSet(f.Ctx(), hash, "state", "paused") },
		"resume": func() { f.Redis.HSet(f.Ctx(), hash, "state", "active") },
		"close":  func() { f.Redis.HSet(f.Ctx(), hash, "state", "closed") },
		"too early": func() {
			f.Redis.HSet(f.Ctx(), hash, "opens_ms", time.Now().Add(time.Hour).UnixMilli())
		},
		"open":           func() { f.Redis.HSet(f.Ctx(), hash, "opens_ms", time.Now().Add(-time.Hour).UnixMilli()) },
		"somebody waits": func() { f.Redis.HSet(f.Ctx(), hash, "waiting", 1) },
		"nobody waits":   func() { f.Redis.HSet(f.Ctx(), hash, "waiting", 0) },
	}
	var names []string
	for name := range changes {
		names = append(names, name)
	}
	answers := map[admission.Result]int{}
	before := f.Count(remembered)
	for round := range 60 {
		change := names[random.IntN(len(names))]
		changes[change]()
		time.Sleep(forgotten) // what was known before the change may be used for this long
		first := pipeline.OrderRequest{UserID: fmt.Sprint("first-", round), Quantity: 1}
		if got, err := f.Try(first); err == nil && got.Result == admission.Accepted {
			held[first.UserID] = got.Receipt.OrderID
		} else {
			f.crowd(got.Result) // everybody gets the same answer now
		}
		for n := range 200 {
			req := pipeline.OrderRequest{UserID: fmt.Sprint("buyer-", random.IntN(60)), Quantity: 1 + random.IntN(4)}
			if n%4 > 0 {
				req.UserID = fmt.Sprintf("newcomer-%d-%d", round, n)
			}
			got, err := f.Try(req)
			if err != nil {
				t.Fatal(err)
			}
			answers[got.Result]++
			want, err := other.Admit(f.Ctx(), f.Sale, req)
			if got.Result == admission.Accepted {
				held[req.UserID] = got.Receipt.OrderID
				continue
			}
			if err != nil || got.Result != want.Result || got.OpensAt != want.OpensAt || got.ClosesAt != want.ClosesAt ||
				got.MaxQuantity != want.MaxQuantity || got.Remaining != want.Remaining ||
				got.Receipt.OrderID != want.Receipt.OrderID {
				t.Fatalf("round %d, after %q, %+v:\ngot  %+v\nwant %+v, %v", round, change, req, got, want, err)
			}
		}
	}
	t.Logf("%v; %.0f without Redis", answers, f.Count(remembered)-before)
	if f.Count(remembered) == before {
		t.Error("nothing was answered from memory")
	}
}

// Before the sale opens nobody is let in, and as soon as Redis' clock says so everybody is.
func TestAFloodBeforeTheOpening(t *testing.T) {
	t.Parallel()
	opens := time.Now().Add(12 * time.Second).Truncate(time.Millisecond) // a busy machine needs some for the rig
	f := newFlooded(t, pipelinetest.Options{Sale: pipeline.Sale{
		Total: 1000, MaxQuantity: 1, OpensAt: opens, ClosesAt: opens.Add(time.Hour),
	}})
	pipelinetest.Together(20, func(int) {
		for {
			before := time.Now()
			got, err := f.newcomer()
			after := time.Now()
			switch {
			case err != nil:
				t.Error(err)
				return
			case got == admission.NotOpen && before.After(opens):
				t.Errorf("refused %s after the opening", before.Sub(opens))
				return
			case got == admission.Accepted:
				if after.Before(opens) {
					t.Errorf("accepted %s before the opening", opens.Sub(after))
				}
				return
			}
		}
	})
	if f.Count(remembered) == 0 {
		t.Error("nothing was answered from memory")
	}
}

// What is remembered ends when Redis is no longer trusted, and when it is gone.
func TestMemoryEndsWithTheTrustInRedis(t *testing.T) {
	t.Parallel()
	f := newFlooded(t, pipelinetest.Options{
		RedisURL: testkit.PrivateRedis(t).URL(), Sale: pipeline.Sale{Total: 1, MaxQuantity: 1},
	})
	f.Admit("ann", 1)
	f.floods(admission.SoldOut)
	if err := f.Redis.Del(f.Ctx(), f.Keys.Trusted(f.Sale.Partitions[0])).Err(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(forgotten)
	if got, err := f.newcomer(); pipeline.KindOf(err) != pipeline.KindNotLoaded {
		t.Errorf("a newcomer at a server that is not verified: got %q, %v, want that it is not", got, err)
	}
	f.Ensure()
	f.floods(admission.SoldOut)
	if err := f.Redis.FlushAll(f.Ctx()).Err(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(forgotten)
	if got, err := f.newcomer(); err == nil || errors.Is(err, f.Ctx().Err()) {
		t.Errorf("a newcomer at a server that was emptied: got %q, %v, want an error", got, err)
	}
}
