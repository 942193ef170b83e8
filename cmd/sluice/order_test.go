package main

import (
	"context"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"sluice/db"
	"sluice/internal/testkit"
	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/admission"
)

// The life of one order, as the operator's commands show it at each station.
func TestOrderIsShownWhereverItIs(t *testing.T) {
	t.Parallel()
	at := servers(t)
	sluice(t, at, "sale", "create", "--id", "drop-1", "--stock", "10").mustFine(t)
	rdb := testkit.Client(t, setting(at, "REDIS_URL"))
	id := accept(t, at, rdb, "alice")

	v := showOrder(t, at, id)
	if v.Status != "queued" || v.UserID != "alice" || v.Row != nil || v.Slot == nil || !v.Slot.HasKey || v.Entry == nil ||
		v.Entry.Consumer != nil || v.Lock != nil {
		t.Errorf("accepted: got %+v", v)
	}
	if views := decoded[[]streamView](t, sluice(t, at, "stream", "--json").mustFine(t)); total(views) != 1 {
		t.Errorf("the streams hold %d events, want 1", total(views))
	}

	// The event is delivered to a worker without a heartbeat: it is dead, with the order pending.
	p := pipeline.PlaceSale("drop-1", 16)[0]
	stream := pipeline.DefaultKeys.Orders(p)
	if err := rdb.XReadGroup(t.Context(), &redis.XReadGroupArgs{
		Group: pipeline.Group, Consumer: "ghost\x1b[2J", Streams: []string{stream, ">"},
	}).Err(); err != nil {
		t.Fatal(err)
	}
	must(t, rdb.Set(t.Context(), pipeline.DefaultKeys.OrderLock(p, id), "token-1", time.Hour).Err())
	v = showOrder(t, at, id)
	if v.Entry == nil || v.Entry.Consumer == nil || *v.Entry.Consumer != "ghost\x1b[2J" || v.Entry.Deliveries != 1 ||
		v.Lock == nil || v.Lock.Token != "token-1" {
		t.Errorf("delivered: got %+v, entry %+v, lock %+v", v, v.Entry, v.Lock)
	}
	for _, args := range [][]string{{"order", "show", "drop-1", id}, {"pending"}, {"workers"}} {
		out := sluice(t, at, args...).mustFine(t)
		if strings.Contains(out, "\x1b") || !strings.Contains(out, `"ghost\x1b[2J"`) {
			t.Errorf("%v: a foreign name reaches the terminal unescaped: %q", args, out)
		}
	}
	pending := decoded[[]pendingView](t, sluice(t, at, "pending", "--json").mustFine(t))
	if len(pending) != 1 || pending[0].Pending != 1 || len(pending[0].Consumers) != 1 || pending[0].Consumers[0].Alive {
		t.Errorf("pending: got %+v, want one order with a dead worker", pending)
	}
	if out := sluice(t, at, "workers").mustFine(t); !strings.Contains(out, "DEAD") ||
		!strings.Contains(out, "start a worker") {
		t.Errorf("workers: got %q, want the dead one flagged", out)
	}

	// A living worker takes it over.
	must(t, rdb.Del(t.Context(), pipeline.DefaultKeys.OrderLock(p, id)).Err())
	stop := startWorker(t, at)
	testkit.Eventually(t, time.Minute, "the order to be persisted and settled", func() bool {
		v = showOrder(t, at, id)
		return v.Row != nil && v.Entry == nil && v.Lock == nil
	})
	if v.Status != "awaiting_payment" || v.Row.Quantity != 1 || v.Row.PayBy == nil || v.Slot == nil ||
		len(v.Releases) != 0 {
		t.Errorf("persisted: got %+v, row %+v", v, v.Row)
	}
	if out := sluice(t, at, "pending").mustFine(t); !strings.Contains(out, "Nothing is pending") {
		t.Errorf("pending: got %q, want nothing", out)
	}
	testkit.Eventually(t, time.Minute, "the living worker to be listed", func() bool {
		for _, w := range decoded[[]workerView](t, sluice(t, at, "workers", "--json").mustFine(t)) {
			if w.Alive && w.Partitions == 16 && w.StartedAt != nil {
				return true
			}
		}
		return false
	})
	stop()
	if out := sluice(t, at, "audit").mustFine(t); !strings.Contains(out, "drop-1") || !strings.Contains(out, "✓") {
		t.Errorf("audit: got %q, want the clean sale", out)
	}
}

func TestUnknownOrder(t *testing.T) {
	t.Parallel()
	at := servers(t)
	sluice(t, at, "sale", "create", "--id", "drop-1", "--stock", "10").mustFine(t)
	rdb := testkit.Client(t, setting(at, "REDIS_URL"))
	accept(t, at, rdb, "alice")
	sluice(t, at, "order", "show", "drop-1", "018f0000-0000-7000-8000-000000000000").mustRefuse(t, 2, "no order 018f0000")
}

// A buyer who waits has the id of an order, too, and an operator finds it.
func TestAWaitingOrderIsShown(t *testing.T) {
	t.Parallel()
	at := servers(t)
	sluice(t, at, "sale", "create", "--id", "drop-1", "--stock", "1", "--waitlist", "10").mustFine(t)
	store, err := db.Open(t.Context(), setting(at, "DATABASE_URL"), db.Options{MaxConns: 1})
	must(t, err)
	t.Cleanup(store.Close)
	generation, err := store.Generation(t.Context())
	must(t, err)
	entry := pipeline.WaitlistEntry{
		SaleID: "drop-1", OrderID: uuid.Must(uuid.NewV7()).String(), UserID: "alice", Number: 1 << 41, Quantity: 1,
		Partition: pipeline.PlaceSale("drop-1", 16)[0], Ticket: 1, KeyHash: "k", PayloadHash: "p", JoinedAt: time.Now(),
	}
	must(t, store.RecordJoin(t.Context(), generation, entry))
	out := sluice(t, at, "order", "show", "drop-1", entry.OrderID).mustFine(t)
	if !strings.Contains(out, "of buyer alice in sale drop-1: waiting") || !strings.Contains(out, "1 unit, since ") {
		t.Errorf("got %q", out)
	}
	if _, err := store.RecordLeave(t.Context(), generation, entry, 2); err != nil {
		t.Fatal(err)
	}
	if v := showOrder(t, at, entry.OrderID); v.Status != "left" || v.Waitlist == nil || v.Waitlist.LeftAt == nil {
		t.Errorf("got %+v, want a buyer who has left", v)
	}
}

// An order whose event was deleted by somebody is still found by its slot, and the audit says what is wrong.
func TestLostEventIsFound(t *testing.T) {
	t.Parallel()
	at := servers(t)
	sluice(t, at, "sale", "create", "--id", "drop-1", "--stock", "10").mustFine(t)
	rdb := testkit.Client(t, setting(at, "REDIS_URL"))
	id := accept(t, at, rdb, "alice")
	sluice(t, at, "audit", "--sale", "drop-1").mustFine(t)
	stream := pipeline.DefaultKeys.Orders(pipeline.PlaceSale("drop-1", 16)[0])
	must(t, rdb.XTrimMaxLen(t.Context(), stream, 0).Err())
	if v := showOrder(t, at, id); v.Slot == nil || v.UserID != "alice" || v.Entry != nil || v.Row != nil {
		t.Errorf("got %+v, want the slot alone", v)
	}
	got := sluice(t, at, "audit", "--json")
	if got.code != 1 {
		t.Errorf("audit: got exit code %d, want 1", got.code)
	}
	views := decoded[[]view.Audit](t, got.out)
	if len(views) != 1 || views[0].Clean || views[0].Drift != 1 || views[0].StrayBuyers != 1 ||
		len(views[0].Findings) != 2 {
		t.Errorf("audit: got %+v, want one unit and one buyer astray", views)
	}
	if got := sluice(t, at, "audit"); got.code != 1 || !strings.Contains(got.out, "✗") ||
		!strings.Contains(got.out, "1 units are missing") || got.err != "" {
		t.Errorf("audit: got %+v, want the finding in the table", got)
	}
	sluice(t, at, "audit", "--apply").mustRefuse(t, 2, "--repair")
	if got := sluice(t, at, "audit", "--repair"); got.code != 1 || !strings.Contains(got.out, "drift") ||
		!strings.Contains(got.out, "Nothing was changed") {
		t.Errorf("the plan of a repair: got %+v", got)
	}
	sluice(t, at, "audit", "--repair", "--sale", "nope").mustRefuse(t, 2, "nope")
	if out := sluice(t, at, "audit", "--repair", "--apply").mustFine(t); !strings.Contains(out, "1 accepts") ||
		!strings.Contains(out, "✓") {
		t.Errorf("the repair: got %q, want the buyer's order kept", out)
	}
	if out := sluice(t, at, "audit").mustFine(t); !strings.Contains(out, "not wrong now: rebuilt in Redis 1 times") {
		t.Errorf("the audit after the repair: got %q, want it reported", out)
	}
}

// A sale that Redis has lost is a finding, not a crash of the audit.
func TestAuditOfALostSale(t *testing.T) {
	t.Parallel()
	at := servers(t)
	sluice(t, at, "sale", "create", "--id", "drop-1", "--stock", "10").mustFine(t)
	sluice(t, at, "sale", "create", "--id", "drop-2", "--stock", "10").mustFine(t)
	must(t, testkit.Client(t, setting(at, "REDIS_URL")).Del(t.Context(),
		pipeline.DefaultKeys.Sale(pipeline.PlaceSale("drop-1", 16)[0], "drop-1")).Err())
	got := sluice(t, at, "audit")
	if got.code != 1 || !strings.Contains(got.out, "does not hold sale drop-1") || !strings.Contains(got.out, "drop-2") {
		t.Errorf("got %+v, want the lost sale as a finding and the other one as well", got)
	}
	if out := sluice(t, at, "sale", "show", "drop-1").mustFine(t); !strings.Contains(out, "not loaded") {
		t.Errorf("got %q, want the sale as not loaded", out)
	}
}

// A sale that is over and gone from Redis is proved by Postgres alone, and nothing of it is to be repaired.
func TestAuditOfASaleThatIsOver(t *testing.T) {
	t.Parallel()
	at := servers(t)
	sluice(t, at, "sale", "create", "--id", "drop-1", "--stock", "10").mustFine(t)
	conn, err := pgx.Connect(t.Context(), setting(at, "DATABASE_URL"))
	must(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	_, err = conn.Exec(t.Context(), `
		update sales set opens_at = opens_at - interval '30 days', closes_at = closes_at - interval '30 days'`)
	must(t, err)
	must(t, testkit.Client(t, setting(at, "REDIS_URL")).Del(t.Context(),
		pipeline.DefaultKeys.Sale(pipeline.PlaceSale("drop-1", 16)[0], "drop-1")).Err())
	if out := sluice(t, at, "audit").mustFine(t); !strings.Contains(out, "✓ (Postgres alone)") {
		t.Errorf("got %q, want a clean audit by Postgres", out)
	}
	views := decoded[[]view.Audit](t, sluice(t, at, "audit", "--json").mustFine(t))
	if len(views) != 1 || !views[0].PostgresAlone || !views[0].Exact || views[0].Stock != 10 {
		t.Errorf("got %+v", views)
	}
	out := sluice(t, at, "audit", "--repair", "--apply").mustFine(t)
	if !strings.Contains(out, "Nothing in Redis needs a repair") {
		t.Errorf("got %q, want nothing repaired", out)
	}
	_, err = conn.Exec(t.Context(), `update sales set sold = 1`)
	must(t, err)
	if got := sluice(t, at, "audit"); got.code != 1 || !strings.Contains(got.out, "counts 1 units sold") {
		t.Errorf("got %+v, want the counter that is off", got)
	}
}

// accept lets a buyer order one unit, as the API does, and returns the order's id.
func accept(t *testing.T, at []string, rdb *redis.Client, user string) string {
	t.Helper()
	store, err := db.Open(t.Context(), setting(at, "DATABASE_URL"), db.Options{})
	must(t, err)
	defer store.Close()
	sale, err := store.Sale(t.Context(), "drop-1")
	must(t, err)
	admitter := admission.New(rdb, pipeline.DefaultKeys, admission.Options{RequestTimeout: time.Minute}, nil,
		slog.New(slog.DiscardHandler))
	got, err := admitter.Admit(t.Context(), sale, pipeline.OrderRequest{UserID: user, Quantity: 1, IdempotencyKey: "k"})
	if err != nil || got.Result != admission.Accepted {
		t.Fatalf("got %s, %v, want an accept", got.Result, err)
	}
	must(t, admitter.Close(t.Context()))
	return got.Receipt.OrderID
}

func showOrder(t *testing.T, at []string, id string) orderView {
	t.Helper()
	return decoded[orderView](t, sluice(t, at, "order", "show", "drop-1", id, "--json").mustFine(t))
}

func total(views []streamView) (events int64) {
	for _, v := range views {
		events += v.Length
	}
	return events
}

// startWorker runs `sluice worker` until the returned function stops it, or the test ends.
func startWorker(t *testing.T, at []string) (stop func()) {
	t.Helper()
	cmd := program(context.WithoutCancel(t.Context()), at, "worker")
	var log testkit.Log
	cmd.Stderr = &log
	must(t, cmd.Start())
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("stop the worker: %v", err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the worker ended with %v:\n%s", err, log.String())
		}
	}
	t.Cleanup(stop)
	return stop
}
