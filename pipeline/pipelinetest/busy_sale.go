package pipelinetest

import (
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/admission"
)

// BusySaleRig is a rig whose sale has an order in every state: ann's 3 units and bob's 2 are persisted, cat's 1 is in
// the stream, dan's 4 are expired and not given back, eve's 5 are given back, and so are fay's 6, which Postgres has
// not noted yet.
type BusySaleRig struct {
	*Rig
	Sale   *pipeline.Sale
	orders map[string]admission.Receipt // by user
}

// BusySale makes a sale with orders in every state.
func (r *Rig) BusySale(id string) *BusySaleRig {
	r.Helper()
	b := &BusySaleRig{
		r,
		r.CreateSale(pipeline.Sale{ID: id, Partitions: []pipeline.Partition{2, 0, 3}, PaymentWindow: time.Hour}),
		map[string]admission.Receipt{},
	}
	r.Sale = b.Sale // for admit, events and release
	for user, quantity := range map[string]int{"ann": 3, "bob": 2, "dan": 4, "eve": 5, "fay": 6} {
		b.orders[user] = r.Admit(user, quantity)
	}
	r.Persist(r.Events(b.Sale)...)
	b.orders["cat"] = r.Admit("cat", 1)
	for _, user := range []string{"dan", "eve", "fay"} {
		r.End(b.orders[user].OrderID)
	}
	for _, user := range []string{"eve", "fay"} {
		r.Release(user, b.orders[user].OrderID)
	}
	r.Applied(b.orders["eve"].OrderID)
	return b
}

// Applied notes in Postgres that an order's stock and slot are given back.
func (r *Rig) Applied(orderID string) {
	r.Helper()
	r.Exec(1, `update releases set applied_at = now() where order_id = $1 and applied_at is null`, orderID)
}

func (b *BusySaleRig) partition(user string) pipeline.Partition { return b.Sale.PartitionOf(user) }

// SaleKey is the key of the sale's hash on its partition.
func (b *BusySaleRig) SaleKey(user string) string { return b.Keys.Sale(b.partition(user), b.Sale.ID) }

func (b *BusySaleRig) buyersKey(user string) string {
	return b.Keys.Buyers(b.partition(user), b.Sale.ID)
}

// Done fails the test when tampering itself failed.
func (b *BusySaleRig) Done(cmd redis.Cmder) {
	b.Helper()
	if cmd.Err() != nil {
		b.Fatal(cmd.Err())
	}
}
