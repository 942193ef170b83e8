package db_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/db"
	"sluice/internal/localservers"
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/idempotency"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/payments"
)

// pair is a primary whose commits wait for its standby.
type pair struct {
	*fixture
	primary, standby *localservers.Postgres
}

func setupPair(t *testing.T) *pair {
	t.Helper()
	t.Parallel()
	primary := testkit.PrivatePostgres(t)
	standby := testkit.PrivateStandby(t, primary)
	return &pair{open(t, primary.URL(), patient), primary, standby}
}

// lose takes the standby away.
func (p *pair) lose() {
	p.Helper()
	ok(p.T, p.standby.Kill())
}

// crash kills the primary, and waits until it is back: what was not confirmed is visible then.
func (p *pair) crash() {
	p.Helper()
	ok(p.T, p.primary.Kill())
	ok(p.T, p.primary.Restart(p.ctx()))
	testkit.Eventually(p.T, time.Minute, "the primary", func() bool { return p.store.Ping(p.ctx()) == nil })
}

// back has the standby follow again.
func (p *pair) back() {
	p.Helper()
	ok(p.T, p.standby.Restart(p.ctx()))
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rowsOf counts a table's rows on one of the servers.
func rowsOf(t *testing.T, server *localservers.Postgres, table string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL())
	ok(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	ok(t, conn.QueryRow(t.Context(), "select count(*) from "+table).Scan(&n))
	return n
}

// unavailable fails the test unless the call was refused for want of a standby.
func unavailable(t *testing.T, what string, err error) {
	t.Helper()
	if pipeline.KindOf(err) != pipeline.KindUnavailable {
		t.Errorf("%s: got %v, want it refused while no standby can confirm it", what, err)
	}
}

// impatient bounds a call that waits for a standby which does not come.
func (p *pair) impatient() context.Context {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), 300*time.Millisecond)
	p.Cleanup(cancel)
	return ctx
}

// cancelWaits cuts the waits for the standby short, as an operator would, until the call has ended.
func (p *pair) cancelWaits(call func() error) error {
	p.Helper()
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	for {
		select {
		case err := <-ended:
			return err
		case <-time.After(20 * time.Millisecond):
			p.quietly(`select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'`)
		}
	}
}

// quietly runs a statement on a connection of its own.
func (p *pair) quietly(statement string) {
	p.Helper()
	conn, err := pgx.Connect(p.ctx(), p.primary.URL())
	ok(p.T, err)
	defer func() { _ = conn.Close(p.ctx()) }()
	_, err = conn.Exec(p.ctx(), statement)
	ok(p.T, err)
}

// A commit whose wait for the standby was cut short is none: Postgres says COMMIT, and a warning. The same of a
// transaction of several statements.
func TestAnUnconfirmedCommitIsNone(t *testing.T) {
	p := setupPair(t)
	p.sale("drop", 100)
	p.lose()
	e := event("drop", "ann", 1, 1)
	for what, call := range map[string]func() error{
		"an order": func() error {
			_, err := p.store.PersistOrders(p.ctx(), 1, []pipeline.Event{e})
			return err
		},
		"a sale": func() error { return p.store.CreateSale(p.ctx(), newSale("other", 10)) },
		"a letter": func() error {
			letter := deadletter.Message{Partition: 3, EntryID: "1-1", Reason: "undecodable", Payload: map[string]any{"s": "x"}}
			return p.store.BuryEvent(p.ctx(), letter, nil)
		},
	} {
		err := p.cancelWaits(call)
		unavailable(t, what, err)
		if err == nil || !strings.Contains(err.Error(), "no synchronous standby confirmed it") {
			t.Errorf("%s: got %v, want it to say why", what, err)
		}
	}
	p.back()
	if got := p.persist(e); got[0] != redelivered {
		t.Errorf("got %s, want the order that is there", got[0])
	}
	ok(t, p.primary.Kill())
	ok(t, p.standby.Promote(p.ctx()))
	if n := rowsOf(t, p.standby, "orders"); n != 1 {
		t.Errorf("the new primary has %d orders, want the one that was acknowledged", n)
	}
}

// Warnings are told whatever the database says of them, and only that of a wait counts.
func TestOtherWarningsAreNone(t *testing.T) {
	p := setupPair(t)
	p.quietly(`create function warn() returns trigger language plpgsql as
		$$ begin raise warning 'the disk is nearly full'; return new; end $$`)
	p.quietly(`create trigger warn before insert on orders for each row execute function warn()`)
	p.quietly(`alter database sluice set client_min_messages = error`)
	p.sale("drop", 100)
	store, err := db.Open(p.ctx(), p.primary.URL()+"&client_min_messages=error", patient)
	ok(t, err)
	t.Cleanup(store.Close)
	outcomes, err := store.PersistOrders(p.ctx(), 1, events("drop", 1))
	if err != nil || outcomes[0] != inserted {
		t.Errorf("got %v, %v; want the order stored, whatever Postgres warns of", outcomes, err)
	}
	p.lose()
	err = p.cancelWaits(func() error {
		_, err := store.PersistOrders(p.ctx(), 1, []pipeline.Event{event("drop", "ann", 1, 7)})
		return err
	})
	unavailable(t, "an order", err)
}

// What a call that was given up, or a crash of the primary, made visible may be on no other disk: it is not
// acknowledged before it is.
func TestAVisibleRowIsNoConfirmedOne(t *testing.T) {
	p := setupPair(t)
	p.sale("drop", 100)
	p.lose()
	e := event("drop", "ann", 1, 1)
	for _, crash := range []bool{false, true} {
		_, err := p.store.PersistOrders(p.impatient(), 1, []pipeline.Event{e})
		unavailable(t, "an order", err)
		if crash {
			p.crash()
		}
		testkit.Eventually(t, time.Minute, "the order to be visible", func() bool {
			return rowsOf(t, p.primary, "orders") == 1
		})
	}
	_, err := p.store.PersistOrders(p.impatient(), 1, []pipeline.Event{e})
	unavailable(t, "the order again", err)
	p.back()
	if got := p.persist(e); got[0] != redelivered {
		t.Errorf("got %s, want the order that is there", got[0])
	}
}

// What is acted upon because it is there is confirmed first, although this call writes nothing: an answer that somebody
// relies on, units that go back to Redis, an event that is sent.
func TestWhatIsActedUponIsConfirmed(t *testing.T) {
	p := setupPair(t)
	sale := p.priced("drop", 100)
	p.endpoint()
	batch := events("drop", 6)
	p.persist(batch...)
	p.sale("drop-1", 10)
	p.pay(payment(batch[2], 1), sale, unknown)
	gone := batch[5]
	p.cancel(gone)
	due := p.late(sale, event("drop", "late", 1, 20))
	joined, joins := waitlistEntry("left", 9), waitlistEntry("joins", 10)
	ok(t, p.store.RecordJoin(p.ctx(), 1, joined))
	claim := p.mustClaim("k")
	p.sequence()
	p.lose()
	type step = func(ctx context.Context) error
	for what, steps := range map[string][2]step{
		"a cancellation": twice(func(ctx context.Context) error {
			_, _, err := p.store.CancelOrder(ctx, "drop", batch[0].OrderID, batch[0].UserID)
			return err
		}),
		"more time": twice(func(ctx context.Context) error {
			_, _, err := p.store.ExtendOrder(ctx, lifecycle.Extension{
				SaleID: "drop", OrderID: batch[1].OrderID, Until: time.Now().Add(time.Hour), Actor: "ann",
			})
			return err
		}),
		"a return": twice(func(ctx context.Context) error {
			_, _, err := p.store.ReturnOrder(ctx, lifecycle.Return{SaleID: "drop", OrderID: batch[2].OrderID, Actor: "ann"})
			return err
		}),
		"a payment": twice(func(ctx context.Context) error {
			_, err := p.store.RecordPayment(ctx, payment(batch[3], 2), sale, unknown)
			return err
		}),
		"a refund": twice(func(ctx context.Context) error {
			_, err := p.store.RecordRefund(ctx, payments.Refund{
				WebhookID: "evt-refund", RefundID: "re_1", PaymentID: due.PaymentID, Amount: due.Amount, Currency: due.Currency,
				Actor: "ann",
			})
			return err
		}),
		"a join": twice(func(ctx context.Context) error {
			return p.store.RecordJoin(ctx, 1, joins)
		}),
		"a leave": twice(func(ctx context.Context) error {
			_, err := p.store.RecordLeave(ctx, 1, joined, 11)
			return err
		}),
		"a letter": twice(func(ctx context.Context) error {
			letter := deadletter.Message{Partition: 3, EntryID: "1-1", Reason: "undecodable", Payload: map[string]any{"s": "x"}}
			return p.store.BuryEvent(ctx, letter, nil)
		}),
		"a kept answer": {
			func(ctx context.Context) error {
				return p.store.AnswerRequest(ctx, claim, idempotency.Answer{Status: 200, Body: []byte("{}")})
			},
			func(ctx context.Context) error {
				_, _, err := p.store.ClaimRequest(ctx, idempotency.NewRequest("k", "test", ""))
				return err
			},
		},
		"units to give back": twice(func(ctx context.Context) error {
			_, err := p.store.UnappliedReleases(ctx, pipeline.SalePartition{}, 10)
			return err
		}),
		"units of an order": twice(func(ctx context.Context) error {
			_, err := p.store.OrderReleases(ctx, "drop", gone.OrderID)
			return err
		}),
		"what a journal forgets": twice(func(ctx context.Context) error {
			_, err := p.store.UnsettledOrders(ctx, []pipeline.OrderKey{{SaleID: "drop", OrderID: batch[4].OrderID}})
			return err
		}),
		"what need not come again": twice(func(ctx context.Context) error {
			_, err := p.store.KnownOrders(ctx, "drop", []string{batch[4].OrderID})
			return err
		}),
		"a sale to publish": twice(func(ctx context.Context) error {
			_, err := p.store.BeginPublish(ctx, "drop")
			return err
		}),
		"events to send": twice(func(ctx context.Context) error {
			_, err := p.store.NextEvents(ctx, 0, nil, 10)
			return err
		}),
	} {
		t.Run(what, func(t *testing.T) {
			for i, step := range steps {
				unavailable(t, []string{"first", "again"}[i], step(p.impatient()))
			}
			p.settled()
			unavailable(t, "once it is visible", steps[1](p.impatient()))
		})
	}
	p.back()
	_, err := p.store.BeginPublish(p.ctx(), "drop")
	ok(t, err)
}

func twice(step func(ctx context.Context) error) [2]func(ctx context.Context) error {
	return [2]func(ctx context.Context) error{step, step}
}

// settled waits until no commit waits for the standby any more: all of them are visible.
func (p *pair) settled() {
	p.Helper()
	testkit.Eventually(p.T, time.Minute, "no commit to wait", func() bool {
		return one[int](p.fixture, `select count(*) from pg_stat_activity where wait_event = 'SyncRep'`) == 0
	})
}
