package pipelinetest

import (
	"fmt"
	"time"

	"sluice/lua"
	"sluice/pipeline"
)

// bulkChunk is how many slots one command writes: a millisecond of Redis.
const bulkChunk = 1000

// bulkOrderID is the id of the n-th order that FillSale makes.
func bulkOrderID(n int) string { return fmt.Sprintf("0191d7c6-0000-7000-8000-%012d", n) }

// FillSale gives a sale on one partition so many live orders of one unit each, as if buyers had ordered and workers had
// persisted them. It writes both stores in bulk, because a test that wants 200,000 orders wants them within seconds.
func (r *Rig) FillSale(sale *pipeline.Sale, orders int) {
	r.Helper()
	p := sale.Partitions[0]
	r.Exec(int64(orders), `
		insert into orders (sale_id, id, number, user_id, quantity, status, partition, sequence, accepted_at)
		select $1, ('0191d7c6-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, n, 'buyer-' || n, 1, 'confirmed', $2, n,
			now()
		from generate_series(1, $3::bigint) as n`, sale.ID, int16(p), orders)
	r.Exec(1, `update sales set sold = $2 where id = $1`, sale.ID, orders)
	r.Exec(1, `insert into watermarks (sale_id, partition, seq) values ($1, $2, $3)`, sale.ID, int16(p), orders)
	now := time.Now().UnixMilli()
	slots := make([]any, 0, 2*bulkChunk)
	for n := 1; n <= orders; n++ {
		slot := lua.Slot{OrderID: bulkOrderID(n), Quantity: 1, Number: int64(n), AcceptedMS: now, Sequence: int64(n)}
		slots = append(slots, fmt.Sprint("buyer-", n), slot.String())
		if len(slots) == 2*bulkChunk || n == orders {
			if err := r.Redis.HSet(r.Ctx(), r.Keys.Buyers(p, sale.ID), slots...).Err(); err != nil {
				r.Fatal(err)
			}
			slots = slots[:0]
		}
	}
	left := sale.Total - int64(orders)
	if err := r.Redis.HSet(r.Ctx(), r.Keys.Sale(p, sale.ID), "stock", left, "accepted", orders).Err(); err != nil {
		r.Fatal(err)
	}
}
