package recovery_test

import (
	"fmt"
	"testing"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/pipelinetest"
)

// TestKeysOutliveRedis: each Idempotency-Key of a buyer answers with its order after Redis has lost everything: the one
// of an order that lives, those of orders that ended before, and one whose order is only in the stream.
func TestKeysOutliveRedis(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 5, MaxQuantity: 2, PaymentWindow: time.Hour}})
	order := func(key string, quantity int) admission.Decision {
		d, err := r.Try(pipeline.OrderRequest{UserID: "ann", Quantity: quantity, IdempotencyKey: key})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	var orders []string
	for n := range 3 {
		d := order(fmt.Sprint("k", n), 2)
		if d.Result != admission.Accepted {
			t.Fatalf("order %d: got %s", n, d.Result)
		}
		orders = append(orders, d.Receipt.OrderID)
		r.Persist(r.Events(r.Sale)...)
		if n < 2 {
			r.End(d.Receipt.OrderID)
			r.Release("ann", d.Receipt.OrderID)
		}
	}
	check := func(when string) {
		t.Helper()
		for n, id := range orders {
			key := fmt.Sprint("k", n)
			if got := order(key, 2); got.Result != admission.Replayed || got.Receipt.OrderID != id {
				t.Errorf("%s: %s: got %s, %+v, want order %s", when, key, got.Result, got.Receipt, id)
			}
			if got := order(key, 1); got.Result != admission.KeyReused {
				t.Errorf("%s: %s with another quantity: got %s", when, key, got.Result)
			}
		}
		if got := order("k9", 2); got.Result != admission.AlreadyOrdered {
			t.Errorf("%s: a new key: got %s", when, got.Result)
		}
	}
	bob := pipeline.OrderRequest{UserID: "bob", Quantity: 1, IdempotencyKey: "b"}
	only, err := r.Try(bob)
	if err != nil || only.Result != admission.Accepted {
		t.Fatalf("bob: got %+v, %v", only, err)
	}
	check("before")
	r.Lose(r.Sale)
	for _, p := range r.Sale.Partitions { // and all but the stream
		for _, key := range []string{
			r.Keys.Buyers(p, r.Sale.ID), r.Keys.ForSale(p, r.Sale.ID).Ended, r.Keys.Trusted(p),
		} {
			if n, err := r.Redis.Del(r.Ctx(), key).Result(); err != nil || n != 1 {
				t.Fatalf("delete %s: %d, %v", key, n, err)
			}
		}
	}
	r.Ensure()
	check("after the loss")
	if got, err := r.Try(bob); err != nil || got.Result != admission.Replayed || got.Receipt != only.Receipt {
		t.Errorf("bob's key: got %+v, %v, want %+v", got, err, only)
	}
}
