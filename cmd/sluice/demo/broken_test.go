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

	"sluice/cmd/sluice/crew"
	"sluice/internal/testkit"
	"sluice/pipeline"
)

// The show starts its API and workers as this binary again.
func TestMain(m *testing.M) {
	if code, served := crew.Serve(os.Args[1:]); served {
		os.Exit(code)
	}
	testkit.Main(m)
}

// showTime bounds the whole show of a test, on a machine that does other things as well.
const showTime = 2 * time.Minute

// The proof of a real sale holds; and it fails for each way in which the stores are then tampered with behind its back, as
// a broken pipeline would.
func TestProofOfARealSaleCanFail(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), showTime)
	defer cancel()
	s := newShow(Options{Requests: 2000, Stock: 100}.WithDefaults(), io.Discard)
	t.Logf("seed %d", s.opts.Seed)
	defer func() {
		if err := s.close(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	if err := s.open(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.play(ctx); err != nil {
		t.Fatal(err)
	}
	if r := mustProve(ctx, t, s); !r.OK {
		t.Fatalf("an honest sale fails: %+v, findings %q, complaints %q", failed(r), r.Audit.Findings, r.Complaints)
	}
	if s.accident == nil || s.accident.InHand == 0 || len(s.accident.Takeovers) == 0 {
		t.Errorf("got the accident %+v, want a worker killed with orders in its hands", s.accident)
	}

	for _, fault := range []struct {
		name        string
		cause, mend string // SQL
		seen        []string
	}{
		{"an order is deleted",
			`create table hidden as select * from orders where user_id = (select min(user_id) from orders);
			 delete from orders where id in (select id from hidden)`,
			`insert into orders select * from hidden; drop table hidden`,
			[]string{"every 202 is exactly one order", "sold out to the unit: no oversell, no undersell"}},
		{"an order is invented",
			`insert into orders (sale_id, id, number, user_id, quantity, status, partition, sequence, accepted_at, pay_by)
			 values ('demo', gen_random_uuid(), 1, 'stranger', 1, 'awaiting_payment', 0, 9999, now(), now() + interval '1h')`,
			`delete from orders where user_id = 'stranger'`,
			[]string{"no order without a 202", "sold out to the unit: no oversell, no undersell"}},
		{"an order changes its buyer",
			`update orders set user_id = 'stranger' where user_id = (select min(user_id) from orders where user_id like 'buyer%')`,
			``, []string{"every 202 is exactly one order"}},
	} {
		execute(ctx, t, s, fault.cause)
		r := mustProve(ctx, t, s)
		if r.OK || !slices.Equal(failed(r), fault.seen) {
			t.Errorf("%s: got %q, want %q", fault.name, failed(r), fault.seen)
		}
		if r.Audit.Clean() {
			t.Errorf("%s: the audit saw nothing", fault.name)
		}
		if fault.mend != "" {
			execute(ctx, t, s, fault.mend)
		}
	}

	// What is left in the stream is seen as well.
	if err := s.redis.XAdd(ctx, &redis.XAddArgs{Stream: pipeline.DefaultKeys.Orders(s.sale.Partitions[0]), Values: []string{"v", "0"}}).Err(); err != nil {
		t.Fatal(err)
	}
	if r := mustProve(ctx, t, s); !slices.Contains(failed(r), "nothing is left in the stream") {
		t.Errorf("an event that is left: got %q", failed(r))
	}
}

func mustProve(ctx context.Context, t *testing.T, s *show) *Result {
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

func execute(ctx context.Context, t *testing.T, s *show, sql string) {
	t.Helper()
	conn, err := pgx.Connect(ctx, s.crew.Config.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }() // nothing is lost
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Fatal(err)
	}
}
