package db_test

import (
	"context"
	"testing"
	"time"

	"sluice/internal/localservers"
	"sluice/internal/testkit"
	"sluice/webhook"
)

// clockFixture is a fixture on a server whose clock the test moves.
func clockFixture(t *testing.T) (*fixture, func(time.Duration)) {
	t.Helper()
	t.Parallel()
	server := testkit.PostgresWithClock(t)
	return open(t, server.URL(), patient), func(offset time.Duration) { setClock(t, server, offset) }
}

func setClock(t *testing.T, server *localservers.Postgres, offset time.Duration) {
	t.Helper()
	if err := server.SetClock(offset); err != nil {
		t.Fatal(err)
	}
}

// A Postgres whose clock is an hour ahead takes no order from a buyer who has time to pay, and an order that is stored
// meanwhile has as much time as any.
func TestAClockThatIsWrongExpiresNothing(t *testing.T) {
	f, set := clockFixture(t)
	f.sale("drop", 10)
	for i, offset := range []time.Duration{0, time.Hour, -time.Hour} {
		set(offset)
		e := event("drop", "user"+string(rune('a'+i)), 1, int64(i+1))
		e.AcceptedAt = time.Now().UTC().Truncate(time.Millisecond)
		f.persist(e)
		if expired, err := f.store.ExpireOrders(f.ctx(), 10); err != nil || len(expired) > 0 {
			t.Errorf("%s ahead: %d orders expired, %v", offset, len(expired), err)
		}
	}
	set(0)
	spread := one[float64](f, `select extract(epoch from max(pay_by) - min(pay_by))::float8 from orders`)
	if spread > 5*60 {
		t.Errorf("orders that were stored at about one time are to be paid within %.0f s of each other", spread)
	}
	f.overdue()
	if expired, err := f.store.ExpireOrders(f.ctx(), 10); err != nil || len(expired) != 3 {
		t.Errorf("overdue: %d orders expired, %v, want 3", len(expired), err)
	}
}

// The holder of a lease died under a clock that is set back since.
func TestALeaseAfterAJumpOfTheClock(t *testing.T) {
	f, set := clockFixture(t)
	elect := func() bool {
		ran, err := f.store.RunExclusively(f.ctx(), "a", func(context.Context) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return ran
	}
	f.exec(`insert into leases (name, holder, expires_at)
		values ('a', gen_random_uuid(), clock_timestamp() + interval '3 s')`)
	set(-time.Hour)
	began := time.Now()
	if elect() {
		t.Error("the lease of a holder that may live was taken at once")
	}
	testkit.Eventually(t, time.Minute, "another one is elected", elect)
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("it was elected after %s, want about 3 s", took)
	}
}

// What endpoints wait for, claims and failures, ends in its own time after a jump.
func TestEndpointsAfterAJumpOfTheClock(t *testing.T) {
	f, set := clockFixture(t)
	f.endpoint()
	f.freeSale("drop", 10)
	f.persist(event("drop", "ann", 1, 1))
	f.sequence()
	set(time.Hour)
	claim := func() []webhook.Claim {
		claims, err := f.store.ClaimEndpoints(f.ctx(), 1, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return claims
	}
	if len(claim()) != 1 {
		t.Fatal("the endpoint could not be claimed")
	}
	set(0)
	var again []webhook.Claim
	testkit.Eventually(t, time.Minute, "the claim of a dead process to end", func() bool {
		again = claim()
		return len(again) == 1
	})
	set(time.Hour)
	if _, err := f.store.FailEndpoint(f.ctx(), &again[0], webhook.Progress{},
		webhook.Failure{Error: "no", Attempts: 1, Backoff: time.Second}); err != nil {
		t.Fatal(err)
	}
	set(0)
	testkit.Eventually(t, time.Minute, "the pause after a failure to end", func() bool { return len(claim()) == 1 })
}
