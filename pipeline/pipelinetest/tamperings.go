package pipelinetest

import (
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"sluice/pipeline/audit"
)

// tampering is one way in which the two stores can come to disagree.
type tampering struct {
	Name     string
	Tamper   func(b *BusySaleRig)
	Shows    func(r *audit.Report)
	Findings []string
}

// Tamperings are all the ways in which the two stores can come to disagree, each with the numbers that must give it
// away and a word of each finding.
var Tamperings = []tampering{
	{
		"a unit too many in stock", func(b *BusySaleRig) { b.Done(b.Redis.HIncrBy(b.Ctx(), b.SaleKey("ann"), "stock", 1)) },
		func(r *audit.Report) { r.Stock, r.Drift = 91, -1 },
		[]string{"have 1 units more than the sale"},
	},
	{
		"a unit missing in stock", func(b *BusySaleRig) { b.Done(b.Redis.HIncrBy(b.Ctx(), b.SaleKey("ann"), "stock", -1)) },
		func(r *audit.Report) { r.Stock, r.Drift = 89, 1 },
		[]string{"1 units are missing"},
	},
	{
		"a stock below zero", func(b *BusySaleRig) { b.Done(b.Redis.HIncrBy(b.Ctx(), b.SaleKey("ann"), "stock", -91)) },
		func(r *audit.Report) { r.Stock, r.Drift = -1, 91 },
		[]string{"91 units are missing", "stock in Redis is -1"},
	},
	{
		"a live order without a slot", func(b *BusySaleRig) { b.Done(b.Redis.HDel(b.Ctx(), b.buyersKey("ann"), "ann")) },
		func(r *audit.Report) { r.Buyers, r.LostBuyers = 3, 1 },
		[]string{"1 orders have no buyer"},
	},
	{
		"an order in flight without a slot",
		func(b *BusySaleRig) { b.Done(b.Redis.HDel(b.Ctx(), b.buyersKey("cat"), "cat")) },
		func(r *audit.Report) { r.Buyers, r.LostBuyers = 3, 1 },
		[]string{"1 orders have no buyer"},
	},
	{
		"a slot freed whose stock is not given back",
		func(b *BusySaleRig) { b.Done(b.Redis.HDel(b.Ctx(), b.buyersKey("dan"), "dan")) },
		func(r *audit.Report) { r.Buyers, r.Unapplied, r.Drift = 3, 0, 4 },
		[]string{"4 units are missing"},
	},
	{
		"stock given back whose slot is not freed",
		func(b *BusySaleRig) { b.Done(b.Redis.HIncrBy(b.Ctx(), b.SaleKey("dan"), "stock", 4)) },
		func(r *audit.Report) { r.Stock, r.Drift = 94, -4 },
		[]string{"have 4 units more than the sale"},
	},
	{
		"a slot of nobody's order", func(b *BusySaleRig) {
			b.Done(b.Redis.HSet(b.Ctx(), b.buyersKey("zoe"), "zoe", uuid.NewString()+" 1 1 1 3 - -"))
		},
		func(r *audit.Report) { r.Buyers, r.StrayBuyers = 5, 1 },
		[]string{"1 buyers are marked"},
	},
	{
		"a slot of an accept that was never counted", func(b *BusySaleRig) {
			b.Done(b.Redis.HSet(b.Ctx(), b.buyersKey("zoe"), "zoe", uuid.NewString()+" 1 1 1 999 - -"))
		},
		func(r *audit.Report) { r.Buyers, r.StrayBuyers = 5, 1 },
		[]string{"1 buyers are marked"},
	},
	{
		"a slot that names another order", func(b *BusySaleRig) {
			b.Done(b.Redis.HSet(b.Ctx(), b.buyersKey("ann"), "ann", uuid.NewString()+" 3 1 1 1 - -"))
		},
		func(r *audit.Report) { r.StrayBuyers, r.LostBuyers = 1, 1 },
		[]string{"1 buyers are marked", "1 orders have no buyer"},
	},
	{
		"a slot that can't be read",
		func(b *BusySaleRig) { b.Done(b.Redis.HSet(b.Ctx(), b.buyersKey("ann"), "ann", "garbage")) },
		func(r *audit.Report) { r.StrayBuyers, r.LostBuyers = 1, 1 },
		[]string{"1 buyers are marked", "1 orders have no buyer"},
	},
	{
		"an event deleted", func(b *BusySaleRig) { b.Forget(b.Events(b.Sale)...) },
		func(r *audit.Report) { r.InFlight, r.Drift, r.StrayBuyers = 0, 1, 1 },
		[]string{"1 units are missing", "1 buyers are marked"},
	},
	{
		"an event without an accept", func(b *BusySaleRig) {
			b.Done(b.Redis.XAdd(b.Ctx(), &redis.XAddArgs{Stream: b.Keys.Orders(b.partition("zoe")), Values: []string{
				"v", "1", "s", b.Sale.ID, "k", "1", "o", uuid.NewString(), "n", "1", "u", "zoe", "q", "2", "t", "1",
			}}))
		},
		func(r *audit.Report) { r.InFlight, r.Drift, r.LostBuyers = 3, -2, 1 },
		[]string{"have 2 units more than the sale", "1 orders have no buyer"},
	},
	{
		"a row deleted", func(b *BusySaleRig) { b.Exec(1, `delete from orders where id = $1`, b.orders["bob"].OrderID) },
		func(r *audit.Report) { r.Live, r.Orders, r.Drift, r.StrayBuyers = 3, 4, 2, 1 },
		[]string{"2 units are missing", "counts 5 units sold, its live orders hold 3", "1 buyers are marked"},
	},
	{
		"a row with a unit more", func(b *BusySaleRig) {
			b.Exec(1, `update orders set quantity = quantity + 1 where id = $1`, b.orders["bob"].OrderID)
		},
		func(r *audit.Report) { r.Live, r.Drift = 6, -1 },
		[]string{"have 1 units more than the sale", "counts 5 units sold, its live orders hold 6"},
	},
	{
		"more sold than there is", func(b *BusySaleRig) {
			b.Exec(1, `update orders set quantity = 200 where id = $1`, b.orders["bob"].OrderID)
		},
		func(r *audit.Report) { r.Live, r.Drift = 203, -198 },
		[]string{"have 198 units more than the sale", "203 units are in live orders, of 100", "counts 5 units sold"},
	},
	{
		"a row of another buyer", func(b *BusySaleRig) {
			b.Exec(1, `update orders set user_id = 'zoe' where id = $1`, b.orders["bob"].OrderID)
		},
		func(r *audit.Report) { r.StrayBuyers, r.LostBuyers = 1, 1 },
		[]string{"1 buyers are marked", "1 orders have no buyer"},
	},
	{
		"a row that ended without a release", func(b *BusySaleRig) {
			b.Exec(1, `update orders set status = 'cancelled', closed_at = now() where id = $1`, b.orders["bob"].OrderID)
		},
		func(r *audit.Report) { r.Live, r.Drift, r.StrayBuyers = 3, 2, 1 },
		[]string{"2 units are missing", "counts 5 units sold, its live orders hold 3", "1 buyers are marked"},
	},
	{
		"a row of an accept that Redis has lost", func(b *BusySaleRig) {
			b.Exec(1, `
				insert into orders (sale_id, id, number, user_id, quantity, status, partition, sequence, accepted_at)
				values ($1, $2, 1, 'zoe', 2, 'confirmed', 0, 999, now())`, b.Sale.ID, uuid.New())
			b.Exec(1, `update sales set sold = sold + 2 where id = $1`, b.Sale.ID)
		},
		func(r *audit.Report) { r.Live, r.Orders, r.Drift, r.LostBuyers = 7, 6, -2, 1 },
		[]string{"have 2 units more than the sale", "1 orders have no buyer"},
	},
	{
		"a release deleted",
		func(b *BusySaleRig) { b.Exec(1, `delete from releases where order_id = $1`, b.orders["dan"].OrderID) },
		func(r *audit.Report) { r.Unapplied, r.Drift, r.StrayBuyers = 0, 4, 1 },
		[]string{"4 units are missing", "1 buyers are marked"},
	},
	{
		"a release that is noted but not done", func(b *BusySaleRig) { b.Applied(b.orders["dan"].OrderID) },
		func(r *audit.Report) { r.Unapplied, r.Drift, r.StrayBuyers = 0, 4, 1 },
		[]string{"4 units are missing", "1 buyers are marked"},
	},
	{
		"a counter of sold units that is off", func(b *BusySaleRig) {
			b.Exec(1, `update sales set sold = sold + 1 where id = $1`, b.Sale.ID)
		},
		func(*audit.Report) {},
		[]string{"counts 6 units sold, its live orders hold 5"},
	},
	{
		"another total in Redis", func(b *BusySaleRig) { b.Done(b.Redis.HIncrBy(b.Ctx(), b.SaleKey("ann"), "total", 5)) },
		func(*audit.Report) {},
		[]string{"total is 105 in Redis and 100 in Postgres"},
	},
	{
		"another total in Postgres",
		func(b *BusySaleRig) { b.Exec(1, `update sales set total = 105 where id = $1`, b.Sale.ID) },
		func(r *audit.Report) { r.Total, r.Drift = 105, 5 },
		[]string{"5 units are missing", "total is 100 in Redis and 105 in Postgres"},
	},
}
