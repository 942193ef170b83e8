package worker_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/pipelinetest"
)

// add writes an entry into the sale's stream as a foreign program would.
func add(r *pipelinetest.Rig, fields ...any) string {
	r.Helper()
	id, err := r.Redis.XAdd(r.Ctx(), &redis.XAddArgs{Stream: r.Keys.Orders(r.Sale.Partitions[0]), Values: fields}).Result()
	if err != nil {
		r.Fatal(err)
	}
	return id
}

// TestPoisonIsBuriedAlone (I7, I8): entries that can't become orders get a letter each; all others are persisted.
func TestPoisonIsBuriedAlone(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	r.AdmitMany("buyer", 40)
	add(r, "nonsense", "\x00\xff")
	add(r, "v", "1", "s", "no-such-sale", "k", "1", "o", "0198c0de-0000-7000-8000-000000000001", "n", "77",
		"u", "ghost", "q", "1", "t", "1700000000000")
	add(r, "v", "1", "s", r.Sale.ID, "k", "900", "o", "0198c0de-0000-7000-8000-000000000002", "n", "78",
		"u", "over", "q", "1000", "t", "1700000000000")
	add(r, "v", "9", "s", r.Sale.ID)
	r.AdmitMany("later", 40)
	r.WorkAll()
	want := map[string]int{"undecodable": 2, "unknown-sale": 1, "over-limit": 1}
	if got := r.Letters(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got letters %v, want %v", got, want)
	}
	r.Balanced(r.Sale, 80)
	order, err := r.Store.Order(r.Ctx(), r.Sale.ID, "0198c0de-0000-7000-8000-000000000002")
	if err != nil || order.Status != pipeline.StatusRejected || order.Reason != "over-limit" {
		t.Errorf("the refused order: got %+v, %v; want it rejected as over-limit", order, err)
	}
	if got := r.Count("sluice_dead_letters_total"); got != 4 {
		t.Errorf("%v letters were counted, want 4", got)
	}
}

// TestAForgedSequence: an entry with a sequence that no sale can have issued is buried, and the sale goes on, whatever
// Redis loses afterwards.
func TestAForgedSequence(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL()})
	for i, k := range []int64{1 << 53, 1<<40 + 1, 1 << 40} {
		add(r, "v", "1", "s", r.Sale.ID, "k", strconv.FormatInt(k, 10),
			"o", fmt.Sprintf("0198c0de-0000-7000-8000-00000000000%d", i), "n", strconv.Itoa(70+i),
			"u", fmt.Sprintf("ghost-%d", i), "q", "1", "t", "1700000000000")
	}
	r.WorkAll()
	if got := r.Letters()["undecodable"]; got != 2 {
		t.Errorf("got %d letters, want 2", got)
	}
	r.Flush()
	r.Ensure()
	r.AdmitMany("buyer", 10)
}

// TestOversellIsRefusedByPostgres (I1, I2): even if Redis sells more than there is, Postgres does not; a rejected order
// loses its slot, and the books are balanced once the stock is corrected.
func TestOversellIsRefusedByPostgres(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 10}})
	sale := r.Keys.Sale(r.Sale.Partitions[0], r.Sale.ID)
	if err := r.Redis.HIncrBy(r.Ctx(), sale, "stock", 15).Err(); err != nil {
		t.Fatal(err)
	}
	r.AdmitMany("buyer", 25)
	r.WorkAll()
	if got := r.Letters()["refused"]; got != 15 {
		t.Errorf("%d orders were refused, want 15", got)
	}
	if err := r.Redis.HIncrBy(r.Ctx(), sale, "stock", -15).Err(); err != nil {
		t.Fatal(err)
	}
	r.Balanced(r.Sale, 10)
}

// TestBuyerConflict (I3, I7): Redis lost a buyer's slot and let the buyer order again; the second order is rejected,
// and its units go back, once.
func TestBuyerConflict(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	p := r.Sale.Partitions[0]
	r.Admit("alice", 1)
	r.Persist(r.Events(r.Sale)...)
	slot := r.Hash(r.Keys.Buyers(p, r.Sale.ID))["alice"]
	if err := r.Redis.HDel(r.Ctx(), r.Keys.Buyers(p, r.Sale.ID), "alice").Err(); err != nil {
		t.Fatal(err)
	}
	second := r.Admit("alice", 2)
	r.WorkAll()
	order, err := r.Store.Order(r.Ctx(), r.Sale.ID, second.OrderID)
	if err != nil || order.Status != pipeline.StatusRejected || order.Reason != "buyer-conflict" {
		t.Errorf("the second order: got %+v, %v; want it rejected as buyer-conflict", order, err)
	}
	if got := r.Stock(r.Sale); got != 99 {
		t.Errorf("the stock is %d, want 99", got)
	}
	// The slot of the order that stands is what Redis lost; with it the books are balanced.
	if err := r.Redis.HSet(r.Ctx(), r.Keys.Buyers(p, r.Sale.ID), "alice", slot).Err(); err != nil {
		t.Fatal(err)
	}
	r.Balanced(r.Sale, 1)
}

// TestReleaseTwice (I7): a release that was applied but not recorded as applied is applied again, which gives nothing
// back.
func TestReleaseTwice(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	receipt := r.Admit("alice", 3)
	r.Persist(r.Events(r.Sale)...)
	r.Exec(1, `update orders set status = 'cancelled', closed_at = now() where id = $1::text::uuid`, receipt.OrderID)
	r.Exec(1, `update sales set sold = sold - 3 where id = $1`, r.Sale.ID)
	r.Exec(1, `insert into releases (sale_id, order_id, sequence, user_id, quantity, partition, reason)
		select sale_id, id, sequence, user_id, quantity, partition, 'cancelled' from orders`)
	for range 3 {
		if err := r.Releaser().Apply(r.Ctx()); err != nil {
			t.Fatal(err)
		}
		if got := r.Stock(r.Sale); got != 100 {
			t.Fatalf("the stock is %d, want 100", got)
		}
		r.Exec(1, `update releases set applied_at = null, given_back = null`) // as if it had not been recorded
	}
	again := r.Admit("alice", 1) // the slot is free, and must not be freed by the old release
	if err := r.Releaser().Apply(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	if got := r.Slots(r.Sale)["alice"].OrderID; got != again.OrderID || r.Stock(r.Sale) != 99 {
		t.Errorf("the slot names %s and the stock is %d, want %s and 99", got, r.Stock(r.Sale), again.OrderID)
	}
}
