package httpapi_test

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/internal/localservers"
	"sluice/internal/testkit"
	"sluice/pipeline/admission"
)

// giveOutages produces the answers of a service whose stores are silent. The queue of admission holds one request, so
// that a few are a flood.
func giveOutages(t *testing.T, c *contract) {
	redis, postgres := testkit.PrivateRedis(t), testkit.PrivatePostgres(t)
	r := newRig(t, rigOptions{
		contract: c, redisURL: redis.URL(), databaseURL: postgres.URL(),
		admission: admission.Options{QueueLimit: 1, RequestTimeout: 3 * time.Second},
	})
	r.create(newSale("drop-1", 10))
	location := r.expect(order("drop-1", "ann", ""), 202, "").header.Get("Location")

	must(t, redis.Pause())
	var flood []call
	for i := range 6 {
		flood = append(flood, order("drop-1", "buyer-"+strconv.Itoa(i), ""))
	}
	r.expectBoth(flood)
	must(t, redis.Resume())

	must(t, postgres.Pause())
	defer func() { must(t, postgres.Resume()) }()
	paths := []string{
		"", "/orders/mine", "/orders/01971f4e-8a3b-7c5d-9e2f-1a2b3c4d5e6f",
		"/orders/01971f4e-8a3b-7c5d-9e2f-1a2b3c4d5e6f/events",
	}
	var few, many []call
	for _, path := range paths {
		few = append(few, get("/v1/sales/unknown"+path, "ann"))
		for i := range 12 { // more than look up sales at once, whatever the path
			many = append(many, get("/v1/sales/unknown-"+strconv.Itoa(i)+path, "ann"))
		}
	}
	few = append(few, cancel("/v1/sales/unknown/orders/01971f4e-8a3b-7c5d-9e2f-1a2b3c4d5e6f", "ann"))
	for i := range 12 {
		many = append(many,
			cancel("/v1/sales/unknown-"+strconv.Itoa(i)+"/orders/01971f4e-8a3b-7c5d-9e2f-1a2b3c4d5e6f", "ann"),
			askStream("/v1/sales/unknown-"+strconv.Itoa(i)+"/orders/01971f4e-8a3b-7c5d-9e2f-1a2b3c4d5e6f", "ann"))
	}
	few = append(few, append(waitlistCalls("unknown", "ann"), askEntry("unknown", "ann", ""))...)
	for i := range 12 {
		many = append(many, waitlistCalls("unknown-"+strconv.Itoa(i), "ann")...)
		many = append(many, askEntry("unknown-"+strconv.Itoa(i), "ann", ""))
	}
	few = append(few, get(location, "ann"), delivery("msg_1",
		paymentOf(receipt{SaleID: "drop-1", OrderID: uuid.NewString()}, nil)))
	if got := r.flood(few); got["store-unavailable"] != len(few) {
		t.Errorf("without Postgres: got %v, want store-unavailable for all %d", got, len(few))
	}
	r.expectBoth(many)
	r.expect(get("/readyz", ""), 503, "")
}

// giveBacklog produces the answer of a service whose workers are away: what was accepted is repeated, and nothing is
// added.
func giveBacklog(t *testing.T, c *contract) {
	r := newRig(t, rigOptions{contract: c, admission: admission.Options{StreamMaxLag: 2}})
	sale := r.create(newSale("drop-1", 10))
	receipt := r.expect(order("drop-1", "ann", "").with("Idempotency-Key", "k"), 202, "")
	r.expect(order("drop-1", "bob", ""), 202, "")
	refused := r.expect(order("drop-1", "cy", ""), 503, "backlog-full")
	if got := refused.header.Get("Retry-After"); got != "5" {
		t.Errorf("Retry-After: got %q, want 5", got)
	}
	again := r.expect(order("drop-1", "ann", "").with("Idempotency-Key", "k"), 202, "")
	if string(again.body) != string(receipt.body) {
		t.Errorf("ann's receipt: got %s, want %s", again.body, receipt.body)
	}
	r.expect(order("drop-1", "bob", ""), 409, "already-ordered")
	must(t, r.rdb.XTrimMaxLen(t.Context(), r.keys.Orders(sale.Partitions[0]), 1).Err())
	r.expect(order("drop-1", "cy", ""), 202, "")
}

// TestAFullRedisIsTold: without memory or disk nothing is accepted and the answer says what is wrong; what needs
// neither is answered as before.
func TestAFullRedisIsTold(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t, "appendfsync everysec")
	r := newRig(t, rigOptions{redisURL: server.URL()})
	r.create(newSale("drop-1", 10))
	r.expect(order("drop-1", "ann", ""), 202, "")
	refused := func(user, detail string) {
		t.Helper()
		got := r.expect(order("drop-1", user, ""), 503, "store-unavailable")
		if got.problem().Detail != detail || got.header.Get("Retry-After") != "1" {
			t.Errorf("got %q, Retry-After %q, want %q and 1", got.problem().Detail, got.header.Get("Retry-After"), detail)
		}
		r.expect(order("drop-1", "ann", ""), 409, "already-ordered")
	}
	must(t, r.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	refused("bob", "Redis is out of memory")
	must(t, r.rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	r.expect(order("drop-1", "bob", ""), 202, "")

	if err := server.LimitFiles(1); err != nil {
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip("this system can't limit the files of a running process, which stands for a full disk")
		}
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, "the disk to be noticed as full", func() bool {
		return r.rdb.Set(t.Context(), r.keys.Prefix+":filler", "x", 0).Err() != nil
	})
	refused("cy", "Redis can't write to its disk")
	must(t, server.LiftLimit())
	testkit.Eventually(t, time.Minute, "orders to be taken again", func() bool {
		return r.do(order("drop-1", "cy", "")).status == 202
	})
}

// expectBoth sends calls at once to a service that is too slow for them, and demands that some are refused because
// the store does not answer, and the others because the queue is full.
func (r *rig) expectBoth(calls []call) {
	r.t.Helper()
	codes := r.flood(calls)
	if codes["store-unavailable"] == 0 || codes["overloaded"] == 0 ||
		codes["store-unavailable"]+codes["overloaded"] != len(calls) {
		r.t.Fatalf("%s %s: got %v, want store-unavailable and overloaded only", calls[0].method, calls[0].path, codes)
	}
}

// flood sends all calls at once and counts the answers by code, or by status where there is none.
func (r *rig) flood(calls []call) map[string]int {
	r.t.Helper()
	var (
		mu    sync.Mutex // protects codes
		codes = map[string]int{}
		sent  sync.WaitGroup
	)
	for _, c := range calls {
		sent.Go(func() {
			got, err := r.try(c)
			code := got.code()
			switch {
			case err != nil:
				r.t.Error(err)
			case code == "":
				code = strconv.Itoa(got.status)
			}
			mu.Lock()
			defer mu.Unlock()
			codes[code]++
		})
	}
	sent.Wait()
	return codes
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestRedisKilledWhileServing: orders are refused in time and nothing is said about the stock; what does not need Redis
// goes on; and with Redis back everything is as it was, without anybody's help.
func TestRedisKilledWhileServing(t *testing.T) {
	t.Parallel()
	redis := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{redisURL: redis.URL(), admission: admission.Options{RequestTimeout: 2 * time.Second}})
	sale := r.create(newSale("drop-1", 5))
	first := r.expect(order("drop-1", "ann", "").with("Idempotency-Key", "k"), 202, "")
	r.persist(sale)
	r.expect(get("/readyz", ""), 200, "")

	must(t, redis.Kill())
	refused := r.soon(4*time.Second, order("drop-1", "bob", ""), 503, "store-unavailable") // the order's deadline is 2 s
	if got := refused.header.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After: got %q, want 1", got)
	}
	r.expect(get(first.header.Get("Location"), "ann"), 200, "")
	testkit.Eventually(t, time.Minute, "the stock to be unknown", func() bool {
		return decode[saleView](t, r.do(get("/v1/sales/drop-1", ""))).Remaining == nil
	})
	if got := r.listed("drop-1").Remaining; got != nil {
		t.Errorf("remaining in the list: got %d, want null", *got)
	}
	testkit.Eventually(t, time.Minute, "readyz to say so", func() bool {
		return r.do(get("/readyz", "")).status == 503
	})

	restart(t, redis)
	testkit.Eventually(t, time.Minute, "orders to be taken again", func() bool {
		return r.do(order("drop-1", "bob", "")).status != 503
	})
	// Bob's refused request may have been accepted by Redis before it was killed; there is one order now.
	r.expect(order("drop-1", "bob", ""), 409, "already-ordered")
	again := r.expect(order("drop-1", "ann", "").with("Idempotency-Key", "k"), 202, "")
	if string(again.body) != string(first.body) {
		t.Errorf("ann's receipt: got %s, want %s", again.body, first.body)
	}
	testkit.Eventually(t, time.Minute, "the stock to be known", func() bool {
		left := decode[saleView](t, r.do(get("/v1/sales/drop-1", ""))).Remaining
		return left != nil && *left == 3
	})
}

func restart(t *testing.T, redis *localservers.Redis) {
	t.Helper()
	must(t, redis.Restart(t.Context()))
}

// TestPostgresKilledWhileServing: orders need no Postgres.
func TestPostgresKilledWhileServing(t *testing.T) {
	t.Parallel()
	postgres := testkit.PrivatePostgres(t)
	r := newRig(t, rigOptions{databaseURL: postgres.URL()})
	r.create(newSale("drop-1", 5))
	must(t, postgres.Kill())
	placed := r.expect(order("drop-1", "ann", ""), 202, "")
	r.expect(order("drop-1", "ann", ""), 409, "already-ordered")
	r.expect(get("/v1/sales/drop-1", ""), 200, "")
	r.soon(5*time.Second, get("/v1/sales/drop-2", ""), 503, "store-unavailable")
	must(t, postgres.Restart(t.Context()))
	testkit.Eventually(t, time.Minute, "the order to be readable", func() bool {
		return r.do(get(placed.header.Get("Location"), "ann")).status == 200
	})
}

// TestOverload: whatever does not fit the queue is refused at once, and everybody gets one answer.
func TestOverload(t *testing.T) {
	t.Parallel()
	redis := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{
		redisURL:  redis.URL(),
		admission: admission.Options{QueueLimit: 4, RequestTimeout: patience},
	})
	r.create(newSale("drop-1", 100))
	must(t, redis.Pause())
	var calls []call
	for i := range 40 {
		calls = append(calls, order("drop-1", fmt.Sprintf("buyer-%d", i), ""))
	}
	codes := r.flood(calls)
	must(t, redis.Resume())
	if codes["overloaded"] < 20 || codes["overloaded"]+codes["store-unavailable"] != 40 {
		t.Errorf("got %v, want at least 20 overloaded and store-unavailable for the rest", codes)
	}
	testkit.Eventually(t, time.Minute, "orders to be taken again", func() bool {
		return r.do(order("drop-1", "late", "")).status == 202
	})
}
