package demo

import (
	"context"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"sluice/internal/buyers"
	"sluice/internal/programs"
	"sluice/internal/testkit"
	"sluice/pipeline"
)

// The demo starts its API and workers as this binary again.
func TestMain(m *testing.M) {
	if code, served := programs.Serve(os.Args[1:]); served {
		os.Exit(code)
	}
	testkit.Main(m)
}

// Names of checks, as they are printed.
const (
	everyAccept = "every 202 is exactly one order"
	noStranger  = "no order without a 202"
	soldOut     = "the rush sold out to the unit: no oversell, no undersell"
	onePayment  = "every paid order has exactly one payment"
	asTold      = "every order ended as its buyer saw it"
	fair        = "units went to those who waited, in the order in which they had joined"
	turnsTold   = "a buyer whose turn came has the order, one who left has none"
	unitsAddUp  = "units paid + units left = units for sale"
)

// demoTime bounds the whole demo of a test, on a machine that does other things as well.
const demoTime = 2 * time.Minute

// paidInTheRush is an order of somebody who did not wait.
const paidInTheRush = `(select min(id::text)::uuid from orders where status = 'paid' and id not in (select order_id from waitlist))`

// swapTurns changes the turns of the first and the last one who were served after waiting; twice is as before.
const swapTurns = `
	with served as (select o.sequence from orders o join waitlist w on w.order_id = o.id),
	ends as (select min(sequence) as low, max(sequence) as high from served)
	update orders set sequence = low + high - sequence from ends where sequence in (low, high)`

// The proof of a real sale holds; and it fails for each way in which the stores are then tampered with behind its
// back, as a broken pipeline would.
func TestProofOfARealSaleCanFail(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), demoTime)
	defer cancel()
	s := newSession(Options{Requests: 2000, Stock: 100, PayWithin: 25 * time.Second}.WithDefaults(), io.Discard)
	t.Logf("seed %d", s.opts.Seed)
	defer func() {
		if err := s.close(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	if err := s.open(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.sell(ctx); err != nil {
		t.Fatal(err)
	}
	r0 := mustProve(ctx, t, s)
	if !r0.OK {
		t.Fatalf("an honest sale fails: %+v, findings %q, complaints %q", failedChecks(r0), r0.Audit.Findings,
			r0.Complaints)
	}
	if s.killed == nil || s.killed.InHand == 0 || len(s.killed.Takeovers) == 0 {
		t.Errorf("got the kill %+v, want a worker killed with orders in flight", s.killed)
	}

	if r0.Ends.Expired == 0 || r0.Ends.Cancelled == 0 || r0.Ends.HandedOver == 0 || r0.Leavers == 0 ||
		r0.Payments[buyers.PaymentRepeated] == 0 {
		t.Errorf("got %+v, payments %v, %d leavers: want some of each", r0.Ends, r0.Payments, r0.Leavers)
	}
	for _, fault := range []struct {
		name        string
		cause, mend string // SQL, with all triggers off
		seen        []string
		audit       bool // sees it as well
	}{
		{
			"an order is deleted",
			`create table hidden as select * from orders where id = ` + paidInTheRush + `;
			 delete from orders where id in (select id from hidden)`,
			`insert into orders select * from hidden; drop table hidden`,
			[]string{everyAccept, soldOut, onePayment, unitsAddUp},
			true,
		},
		{
			"an order is invented",
			`insert into orders (sale_id, id, number, user_id, quantity, status, partition, sequence, accepted_at, pay_by)
			 values ('demo', gen_random_uuid(), 1, 'stranger', 1, 'awaiting_payment', 0, 9999, now(), now() + interval '1h')`,
			`delete from orders where user_id = 'stranger'`,
			[]string{noStranger, asTold},
			true,
		},
		{
			"a paid order is set back",
			`create table hidden as select * from orders where id = ` + paidInTheRush + `;
			 update orders set status = 'awaiting_payment', paid_at = null, payment_id = null, pay_by = now() + interval '1h'
			 where id in (select id from hidden)`,
			`delete from orders where id in (select id from hidden); insert into orders select * from hidden; drop table hidden`,
			[]string{onePayment, asTold, unitsAddUp},
			false,
		},
		{
			"an order is paid twice",
			`drop index payments_paid_order_key; insert into payments (payment_id, sale_id, order_id, amount, currency, outcome, actor, decided_at)
			 values ('other', 'demo', ` + paidInTheRush + `, 1999, 'EUR', 'paid', 'x', now())`,
			`delete from payments where payment_id = 'other';
			 create unique index payments_paid_order_key on payments (sale_id, order_id) where outcome = 'paid'`,
			[]string{onePayment},
			false,
		},
		{"a person who waits is overtaken", swapTurns, swapTurns, []string{fair}, false},
		{
			"somebody who left is served",
			`insert into orders (sale_id, id, number, user_id, quantity, status, partition, sequence, accepted_at, closed_at)
			 select sale_id, order_id, number, user_id, 1, 'expired', partition, 9999, now(), now() from waitlist
			 where left_at is not null limit 1`,
			`delete from orders where sequence = 9999`,
			[]string{turnsTold},
			false,
		},
		{
			"an order changes its buyer",
			`update orders set user_id = 'stranger' where id = ` + paidInTheRush,
			``,
			[]string{everyAccept},
			true,
		},
	} {
		execute(ctx, t, s, fault.cause)
		r := mustProve(ctx, t, s)
		if r.OK || !slices.Equal(failed(r), fault.seen) {
			t.Errorf("%s: got %q, want %q", fault.name, failed(r), fault.seen)
		}
		if fault.audit && r.Audit.Clean() {
			t.Errorf("%s: the audit saw nothing", fault.name)
		}
		if fault.mend != "" {
			execute(ctx, t, s, fault.mend)
			if r := mustProve(ctx, t, s); !r.OK {
				t.Errorf("%s, mended: got %q", fault.name, failed(r))
			}
		}
	}

	// What is left in the stream is seen as well, where no worker buries it.
	for _, w := range s.stack.Workers {
		_ = w.Kill() // one of them is dead already
	}
	if err := s.redis.XAdd(ctx, &redis.XAddArgs{
		Stream: pipeline.DefaultKeys.Orders(s.sale.Partitions[0]),
		Values: []string{"v", "0"},
	}).Err(); err != nil {
		t.Fatal(err)
	}
	if r := mustProve(ctx, t, s); !slices.Contains(failed(r), "nothing is left in the stream") {
		t.Errorf("an event that is left: got %q", failed(r))
	}
}

func mustProve(ctx context.Context, t *testing.T, s *session) *Result {
	t.Helper()
	r, err := s.prove(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func failed(r *Result) []string {
	var names []string
	for _, c := range r.Checks {
		if !c.OK {
			names = append(names, c.Name)
		}
	}
	return names
}

func failedChecks(r *Result) []buyers.Check {
	return slices.DeleteFunc(slices.Clone(r.Checks), func(c buyers.Check) bool { return c.OK })
}

func execute(ctx context.Context, t *testing.T, s *session, sql string) {
	t.Helper()
	conn, err := pgx.Connect(ctx, s.stack.Config.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }() // nothing is lost
	// Without triggers: what a broken pipeline could not do is done all the same.
	if _, err := conn.Exec(ctx, "set session_replication_role = replica;"+sql); err != nil {
		t.Fatal(err)
	}
}
