package lifecycle_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/internal/faultnet"
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/pipelinetest"
)

// lookupRig is a rig whose look-ups reach both stores through bad networks.
type lookupRig struct {
	*pipelinetest.Rig
	lookup          *lifecycle.Lookup
	redis, postgres *faultnet.Proxy
}

func newLookupRig(t *testing.T, sale pipeline.Sale) *lookupRig {
	t.Helper()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: sale})
	l := &lookupRig{
		Rig:      r,
		redis:    pipelinetest.Through(t, pipelinetest.RedisURL(r)),
		postgres: pipelinetest.Through(t, pipelinetest.WithoutTLS(t, r.Options.DatabaseURL)),
	}
	l.lookup = lifecycle.NewLookup(testkit.Client(t, l.redis.URL()), r.Keys, r.OpenStore(l.postgres.URL()))
	return l
}

// both asks for an order by its id, and for the buyer's.
func (r *lookupRig) both(user, orderID string) (byID, mine pipeline.Order, errs [2]error) {
	byID, errs[0] = r.lookup.Order(r.Ctx(), r.Sale, user, orderID)
	mine, errs[1] = r.lookup.Mine(r.Ctx(), r.Sale, user)
	return byID, mine, errs
}

// known is both, where the stores that are there know the answer: a busy machine may be asked more often than once.
func (r *lookupRig) known(user, orderID string) (byID, mine pipeline.Order, errs [2]error) {
	byID, errs[0] = answered(func() (pipeline.Order, error) { return r.lookup.Order(r.Ctx(), r.Sale, user, orderID) })
	mine, errs[1] = answered(func() (pipeline.Order, error) { return r.lookup.Mine(r.Ctx(), r.Sale, user) })
	return byID, mine, errs
}

// answered asks until the answer is something else than that a store did not answer in time.
func answered(ask func() (pipeline.Order, error)) (order pipeline.Order, err error) {
	for until := time.Now().Add(pipelinetest.CallLimit); ; {
		if order, err = ask(); pipeline.KindOf(err) != pipeline.KindUnavailable || time.Now().After(until) {
			return order, err
		}
	}
}

// wantBoth expects the order both ways, with this status.
func (r *lookupRig) wantBoth(user string, want admission.Receipt, status pipeline.OrderStatus) {
	r.Helper()
	byID, mine, errs := r.known(user, want.OrderID)
	for i, got := range []pipeline.Order{byID, mine} {
		if errs[i] != nil {
			r.Errorf("%s %s: %v", [2]string{"by id", "mine"}[i], status, errs[i])
			continue
		}
		if got.SaleID != want.SaleID || got.ID != want.OrderID || got.Number != want.Number || got.UserID != user ||
			got.Quantity != want.Quantity || !got.AcceptedAt.Equal(want.AcceptedAt) || got.Status != status {
			r.Errorf("%s: got %+v, want %s and %+v", [2]string{"by id", "mine"}[i], got, status, want)
		}
		if queued := status == pipeline.StatusQueued; queued != got.PersistedAt.IsZero() {
			r.Errorf("%s: persisted at %s, status %s", [2]string{"by id", "mine"}[i], got.PersistedAt, status)
		}
	}
}

func (r *lookupRig) wantNeither(user, orderID string, kind pipeline.Kind) {
	r.Helper()
	ask := r.known
	if kind == pipeline.KindUnavailable {
		ask = r.both
	}
	_, _, errs := ask(user, orderID)
	for i, err := range errs {
		if pipeline.KindOf(err) != kind {
			r.Errorf("%s: got %v, want %s", [2]string{"by id", "mine"}[i], err, kind)
		}
	}
}

func TestAnOrderIsFoundWhereverItIs(t *testing.T) {
	t.Parallel()
	r := newLookupRig(t, pipeline.Sale{PaymentWindow: time.Hour})
	first := r.Admit("ann", 2)
	r.wantBoth("ann", first, pipeline.StatusQueued)
	r.Persist(r.Events(r.Sale)...)
	r.wantBoth("ann", first, pipeline.StatusAwaitingPayment)
	r.End(first.OrderID)
	r.wantBoth("ann", first, pipeline.StatusExpired) // although its slot is not given back yet
	r.Release("ann", first.OrderID)
	r.wantBoth("ann", first, pipeline.StatusExpired)

	second := r.Admit("ann", 1)
	r.wantBoth("ann", second, pipeline.StatusQueued)
	got, err := answered(func() (pipeline.Order, error) { return r.lookup.Order(r.Ctx(), r.Sale, "ann", first.OrderID) })
	if err != nil || got.Status != pipeline.StatusExpired {
		t.Errorf("the first order: got %+v, %v", got, err)
	}
	r.Persist(r.Events(r.Sale)...)
	r.wantBoth("ann", second, pipeline.StatusAwaitingPayment)
}

// TestALostSlotIsNotMissing: while Redis is being verified, an order that it has lost may come back, so that nobody is
// told that there is none.
func TestALostSlotIsNotMissing(t *testing.T) {
	t.Parallel()
	r := newLookupRig(t, pipeline.Sale{})
	anns := r.Admit("ann", 1)
	p := r.Sale.PartitionOf("ann")
	slots := r.Keys.Buyers(p, r.Sale.ID)
	slot := r.Redis.HGet(r.Ctx(), slots, "ann").Val()
	verified := r.Redis.Get(r.Ctx(), r.Keys.Trusted(p)).Val()
	if slot == "" || verified == "" {
		t.Fatalf("slot %q, verified %q: want both", slot, verified)
	}
	set := func(what, value string) {
		t.Helper()
		if err := r.Redis.Set(r.Ctx(), what, value, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Redis.HDel(r.Ctx(), slots, "ann").Err(); err != nil {
		t.Fatal(err)
	}
	set(r.Keys.Trusted(p), "nobody")
	r.wantNeither("ann", anns.OrderID, pipeline.KindUnavailable)
	if err := r.Redis.HSet(r.Ctx(), slots, "ann", slot).Err(); err != nil {
		t.Fatal(err)
	}
	r.wantBoth("ann", anns, pipeline.StatusQueued) // also before the verification has ended
	set(r.Keys.Trusted(p), verified)
	r.wantNeither("cat", anns.OrderID, pipeline.KindNotFound)
}

// TestALostSlotHidesNoOlderOrder: while Redis is being verified, an order that has ended is not shown for the latest
// one, since a newer one may come back. Under its own id it is shown.
func TestALostSlotHidesNoOlderOrder(t *testing.T) {
	t.Parallel()
	r := newLookupRig(t, pipeline.Sale{PaymentWindow: time.Hour})
	ended := r.Admit("ann", 1)
	r.Persist(r.Events(r.Sale)...)
	r.End(ended.OrderID)
	r.Release("ann", ended.OrderID)
	p := r.Sale.PartitionOf("ann")
	trusted, slots := r.Keys.Trusted(p), r.Keys.Buyers(p, r.Sale.ID)
	verified := r.Redis.Get(r.Ctx(), trusted).Val()
	newer := r.Admit("ann", 1)
	slot := r.Redis.HGet(r.Ctx(), slots, "ann").Val()
	_, errDel := r.Redis.HDel(r.Ctx(), slots, "ann").Result()
	if err := errors.Join(errDel, r.Redis.Set(r.Ctx(), trusted, "nobody", 0).Err()); err != nil || verified == "" {
		t.Fatalf("verified %q: %v", verified, err)
	}
	byID, mine, errs := r.both("ann", ended.OrderID)
	if errs[0] != nil || byID.ID != ended.OrderID {
		t.Errorf("by id: got %+v, %v, want the order that has ended", byID, errs[0])
	}
	if pipeline.KindOf(errs[1]) != pipeline.KindUnavailable {
		t.Errorf("mine: got %+v, %v, want KindUnavailable", mine, errs[1])
	}
	_, errSet := r.Redis.HSet(r.Ctx(), slots, "ann", slot).Result()
	if err := errors.Join(errSet, r.Redis.Set(r.Ctx(), trusted, verified, 0).Err()); err != nil {
		t.Fatal(err)
	}
	r.wantBoth("ann", newer, pipeline.StatusQueued)
}

func TestSomebodyElsesOrderIsNotFound(t *testing.T) {
	t.Parallel()
	r := newLookupRig(t, pipeline.Sale{})
	anns, bobs := r.Admit("ann", 1), r.Admit("bob", 1)
	for _, state := range []string{"queued", "persisted"} {
		for user, orderID := range map[string]string{"ann": bobs.OrderID, "bob": anns.OrderID, "cat": anns.OrderID} {
			_, err := answered(func() (pipeline.Order, error) { return r.lookup.Order(r.Ctx(), r.Sale, user, orderID) })
			if pipeline.KindOf(err) != pipeline.KindNotFound {
				t.Errorf("%s: %s asks for somebody else's order: got %v", state, user, err)
			}
		}
		r.wantNeither("cat", uuid.NewString(), pipeline.KindNotFound)
		for _, id := range []string{"", "x", "{p01}", "\x00"} {
			_, err := answered(func() (pipeline.Order, error) { return r.lookup.Order(r.Ctx(), r.Sale, "cat", id) })
			if pipeline.KindOf(err) != pipeline.KindNotFound {
				t.Errorf("%s: order %q: got %v", state, id, err)
			}
		}
		if state == "queued" {
			r.Persist(r.Events(r.Sale)...)
		}
	}
	other := r.CreateSale(pipeline.Sale{ID: "other"})
	_, err := answered(func() (pipeline.Order, error) { return r.lookup.Order(r.Ctx(), other, "ann", anns.OrderID) })
	if pipeline.KindOf(err) != pipeline.KindNotFound {
		t.Errorf("in another sale: got %v", err)
	}
}

// TestLookingUpWhilePostgresIsAway: what one store alone does not know for certain is neither reported nor denied.
func TestLookingUpWhilePostgresIsAway(t *testing.T) {
	t.Parallel()
	r := newLookupRig(t, pipeline.Sale{})
	order := r.Admit("ann", 1)
	r.postgres.Cut()
	r.wantNeither("ann", order.OrderID, pipeline.KindUnavailable) // the row may be there already
	r.wantNeither("bob", order.OrderID, pipeline.KindUnavailable)
	r.postgres.Heal()
	testkit.Eventually(t, pipelinetest.CallLimit, "the pool to recover", func() bool {
		_, err := r.lookup.Mine(r.Ctx(), r.Sale, "ann")
		return err == nil
	})
	r.wantBoth("ann", order, pipeline.StatusQueued)
}

func TestLookingUpWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	r := newLookupRig(t, pipeline.Sale{PaymentWindow: time.Hour})
	live, ended := r.Admit("ann", 1), r.Admit("bob", 1)
	r.Persist(r.Events(r.Sale)...)
	r.End(ended.OrderID)
	queued := r.Admit("cat", 1)
	for name, fault := range map[string]func(){"cut": r.redis.Cut, "frozen": r.redis.Freeze} {
		fault()
		pipelinetest.Together(4, func(i int) { // each waits for Redis as long as it may
			switch i {
			case 0:
				byID, mine, errs := r.known("ann", live.OrderID)
				if errs != [2]error{} || byID.ID != live.OrderID || mine.ID != live.OrderID {
					t.Errorf("%s: a live order that Postgres has: got %+v, %+v, %v", name, byID, mine, errs)
				}
			case 1:
				got, err := answered(
					func() (pipeline.Order, error) { return r.lookup.Order(r.Ctx(), r.Sale, "bob", ended.OrderID) },
				)
				if err != nil || got.Status != pipeline.StatusExpired {
					t.Errorf("%s: an ended order by its id: got %+v, %v", name, got, err)
				}
			case 2:
				if got, err := r.lookup.Mine(r.Ctx(), r.Sale, "bob"); pipeline.KindOf(err) != pipeline.KindUnavailable {
					t.Errorf("%s: there may be a newer order in the stream: got %+v, %v", name, got, err)
				}
			case 3:
				r.wantNeither("cat", queued.OrderID, pipeline.KindUnavailable)
			}
		})
		r.redis.Heal()
		r.redis.Thaw()
	}
	r.wantBoth("cat", queued, pipeline.StatusQueued)
}

func TestALookUpHasADeadline(t *testing.T) {
	t.Parallel()
	r := newLookupRig(t, pipeline.Sale{})
	order := r.Admit("ann", 1)
	r.redis.Freeze()
	r.postgres.Freeze()
	ctx, cancel := context.WithTimeout(r.Ctx(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := r.lookup.Order(ctx, r.Sale, "ann", order.OrderID)
	pipelinetest.WantKind(t, err, pipeline.KindUnavailable)
	if took := time.Since(began); took > pipelinetest.CallLimit { // without a deadline it takes for ever
		t.Errorf("the caller's 100 ms took %s", took)
	}
	began = time.Now()
	_, err = r.lookup.Order(r.Ctx(), r.Sale, "ann", order.OrderID)
	pipelinetest.WantKind(t, err, pipeline.KindUnavailable)
	if took := time.Since(began); took > pipelinetest.CallLimit {
		t.Errorf("a caller without a deadline waited %s", took)
	}
}

func TestASlotThatCannotBeReadIsNoAnswer(t *testing.T) {
	t.Parallel()
	r := newLookupRig(t, pipeline.Sale{})
	order := r.Admit("ann", 1)
	if err := r.Redis.HSet(r.Ctx(), r.Keys.Buyers(r.Sale.Partitions[0], r.Sale.ID), "ann", "garbage").Err(); err != nil {
		t.Fatal(err)
	}
	r.wantNeither("ann", order.OrderID, pipeline.KindUnavailable)
}
