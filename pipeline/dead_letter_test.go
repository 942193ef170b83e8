package pipeline_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
)

// add writes an entry into the sale's stream as a stranger would.
func (r *rig) add(fields ...any) string {
	r.Helper()
	id, err := r.rdb.XAdd(r.ctx(), &redis.XAddArgs{Stream: r.keys.Orders(r.sale.Partitions[0]), Values: fields}).Result()
	if err != nil {
		r.Fatal(err)
	}
	return id
}

// TestPoisonIsBuriedAlone (I7, I8): entries that can't become orders get a letter each; everybody else is persisted.
func TestPoisonIsBuriedAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.admitMany("buyer", 40)
	r.add("nonsense", "\x00\xff")
	r.add("v", "1", "s", "no-such-sale", "k", "1", "o", "0198c0de-0000-7000-8000-000000000001", "n", "77", "u", "ghost", "q", "1", "t", "1700000000000")
	r.add("v", "1", "s", r.sale.ID, "k", "900", "o", "0198c0de-0000-7000-8000-000000000002", "n", "78", "u", "over", "q", "1000", "t", "1700000000000")
	r.add("v", "9", "s", r.sale.ID)
	r.admitMany("later", 40)
	r.workAll()
	want := map[string]int{"undecodable": 2, "unknown-sale": 1, "refused": 1}
	if got := r.letters(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got letters %v, want %v", got, want)
	}
	r.balanced(r.sale, 80)
	order, err := r.store.Order(r.ctx(), r.sale.ID, "0198c0de-0000-7000-8000-000000000002")
	if err != nil || order.Status != pipeline.StatusRejected || order.Reason != "refused" {
		t.Errorf("the refused order: got %+v, %v; want it rejected as refused", order, err)
	}
	if got := r.count("sluice_dead_letters_total"); got != 4 {
		t.Errorf("%v letters were counted, want 4", got)
	}
}

// TestOversellIsRefusedByPostgres (I1, I2): even if Redis sells more than there is, Postgres does not; whoever is rejected
// loses the slot, and the books are balanced once the stock is.
func TestOversellIsRefusedByPostgres(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: 10}})
	sale := r.keys.Sale(r.sale.Partitions[0], r.sale.ID)
	if err := r.rdb.HIncrBy(r.ctx(), sale, "stock", 15).Err(); err != nil {
		t.Fatal(err)
	}
	r.admitMany("buyer", 25)
	r.workAll()
	if got := r.letters()["refused"]; got != 15 {
		t.Errorf("%d orders were refused, want 15", got)
	}
	if err := r.rdb.HIncrBy(r.ctx(), sale, "stock", -15).Err(); err != nil {
		t.Fatal(err)
	}
	r.balanced(r.sale, 10)
}

// TestBuyerConflict (I3, I7): Redis forgot a buyer's slot and let him order again; the second order is rejected, and its unit
// goes back, once.
func TestBuyerConflict(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	p := r.sale.Partitions[0]
	r.admit("alice", 1)
	r.persist(r.events(r.sale)...)
	slot := r.hash(r.keys.Buyers(p, r.sale.ID))["alice"]
	if err := r.rdb.HDel(r.ctx(), r.keys.Buyers(p, r.sale.ID), "alice").Err(); err != nil {
		t.Fatal(err)
	}
	second := r.admit("alice", 2)
	r.workAll()
	order, err := r.store.Order(r.ctx(), r.sale.ID, second.OrderID)
	if err != nil || order.Status != pipeline.StatusRejected || order.Reason != "buyer-conflict" {
		t.Errorf("the second order: got %+v, %v; want it rejected as buyer-conflict", order, err)
	}
	if got := r.stock(r.sale); got != 99 {
		t.Errorf("the stock is %d, want 99", got)
	}
	// The slot of the order that stands is what Redis lost; with it the books are balanced.
	if err := r.rdb.HSet(r.ctx(), r.keys.Buyers(p, r.sale.ID), "alice", slot).Err(); err != nil {
		t.Fatal(err)
	}
	r.balanced(r.sale, 1)
}

// TestReleaseTwice (I7): a release that was applied and not marked is applied again, which gives nothing back.
func TestReleaseTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	receipt := r.admit("alice", 3)
	r.persist(r.events(r.sale)...)
	r.exec(1, `update orders set status = 'cancelled', closed_at = now() where id = $1::text::uuid`, receipt.OrderID)
	r.exec(1, `update sales set sold = sold - 3 where id = $1`, r.sale.ID)
	r.exec(1, `insert into releases (sale_id, order_id, sequence, user_id, quantity, partition, reason)
		select sale_id, id, sequence, user_id, quantity, partition, 'cancelled' from orders`)
	for range 3 {
		if err := r.releaser().Apply(r.ctx()); err != nil {
			t.Fatal(err)
		}
		if got := r.stock(r.sale); got != 100 {
			t.Fatalf("the stock is %d, want 100", got)
		}
		r.exec(1, `update releases set applied_at = null, given_back = null`) // as if the mark had been lost
	}
	again := r.admit("alice", 1) // the slot is free, and must not be freed by the old release
	if err := r.releaser().Apply(r.ctx()); err != nil {
		t.Fatal(err)
	}
	if got := r.slots(r.sale)["alice"].OrderID; got != again.OrderID || r.stock(r.sale) != 99 {
		t.Errorf("the slot names %s and the stock is %d, want %s and 99", got, r.stock(r.sale), again.OrderID)
	}
}
