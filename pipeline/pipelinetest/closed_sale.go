package pipelinetest

import (
	"time"

	"github.com/google/uuid"

	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/payments"
)

// ClosedSaleRig is a rig whose sale, of 100 units on one partition, has an order in every status, none in flight and
// none to give back: ann's is paid, bob awaits payment; cat has returned hers, which was refunded and is withdrawn; dan
// has returned his, which is to be refunded; eve has cancelled, and paid late; fay's has expired; gus was rejected. Of
// hal's accept nothing is left but that a rebuild has counted it as lost; so it has ian's, which was rejected later;
// and joy's came after all of them and awaits payment.
type ClosedSaleRig struct {
	*Rig
	Orders map[string]admission.Receipt // by user
}

// ClosedSale makes a sale with orders in every status. It is not over yet, see Over.
func ClosedSale(r *Rig) *ClosedSaleRig {
	r.Helper()
	c := &ClosedSaleRig{r, map[string]admission.Receipt{}}
	r.Sale = r.CreateSale(pipeline.Sale{
		ID: "closed", Partitions: []pipeline.Partition{1}, PaymentWindow: time.Hour, UnitPrice: 500, Currency: "EUR",
	})
	for _, user := range []string{"ann", "bob", "cat", "dan", "eve", "fay", "gus", "hal", "ian", "joy"} {
		c.Orders[user] = r.Admit(user, 1)
	}
	for _, e := range r.Events(r.Sale) {
		c.settle(e)
	}
	for _, user := range []string{"ann", "cat", "dan"} {
		c.pay(user, payments.Paid)
	}
	c.takeBack("cat", false)
	c.takeBack("dan", true)
	if _, changed, err := r.Store.CancelOrder(r.Ctx(), r.Sale.ID, c.Orders["eve"].OrderID, "eve"); err != nil || !changed {
		r.Fatalf("cancel: %v, %v", changed, err)
	}
	c.pay("eve", payments.RefundDue)
	r.End(c.Orders["fay"].OrderID)
	refund := payments.Refund{RefundID: "re_cat", PaymentID: "pay_" + c.Orders["cat"].OrderID, Actor: "test"}
	if record, err := r.Store.RecordRefund(r.Ctx(), refund); err != nil || record.Refund.Outcome != payments.Refunded {
		r.Fatalf("refund: %+v, %v", record, err)
	}
	if err := r.Releaser().Apply(r.Ctx()); err != nil {
		r.Fatal(err)
	}
	return c
}

// settle takes an event out of the stream, as its buyer's story wants it.
func (c *ClosedSaleRig) settle(e pipeline.Event) {
	c.Helper()
	switch e.UserID {
	case "gus":
		letter := deadletter.Message{
			Partition: e.Partition, EntryID: e.EntryID, SaleID: e.SaleID, OrderID: e.OrderID, Payload: e.Fields(),
			Reason: "over-limit", Deliveries: 1,
		}
		if err := c.Store.BuryEvent(c.Ctx(), letter, &e); err != nil {
			c.Fatal(err)
		}
	case "hal":
		c.loseSlot(e)
		c.Exec(1, `update watermarks set lost = lost + 2 where sale_id = $1`, c.Sale.ID)
	case "ian":
		e.Sequence = 1 // since Redis had lost it, its sequence was given out once more
		if err := c.Burier().BuryLost(c.Ctx(), &e, "lost:"+e.OrderID, "for the test"); err != nil {
			c.Fatal(err)
		}
	default:
		c.Persist(e)
		return
	}
	c.Forget(e)
}

// loseSlot puts an accept's units back into stock, as a rebuild does that finds nothing of it.
func (c *ClosedSaleRig) loseSlot(e pipeline.Event) {
	c.Helper()
	pipe := c.Redis.TxPipeline()
	pipe.HDel(c.Ctx(), c.Keys.Buyers(e.Partition, e.SaleID), e.UserID)
	pipe.HIncrBy(c.Ctx(), c.Keys.Sale(e.Partition, e.SaleID), "stock", int64(e.Quantity))
	if _, err := pipe.Exec(c.Ctx()); err != nil {
		c.Fatal(err)
	}
}

func (c *ClosedSaleRig) pay(user string, want payments.Outcome) {
	c.Helper()
	receipt := c.Orders[user]
	got, err := c.Payments().Pay(c.Ctx(), PaymentFor(&receipt, 0))
	if err != nil || got.Outcome != want {
		c.Fatalf("pay for %s: %+v, %v, want %s", user, got, err, want)
	}
}

func (c *ClosedSaleRig) takeBack(user string, restock bool) {
	c.Helper()
	returner := lifecycle.NewReturner(c.Store, c.Notifier(), c.Metrics.Lifecycle)
	_, err := returner.Return(c.Ctx(), lifecycle.Return{
		SaleID: c.Sale.ID, OrderID: c.Orders[user].OrderID, Restock: restock, Actor: "test", Reason: "broken",
	})
	if err != nil {
		c.Fatal(err)
	}
}

// Over moves a sale's window back by a month, in both stores: it is over for all.
func (r *Rig) Over(saleID string) {
	r.Helper()
	const month = 30 * 24 * time.Hour
	sale := r.Stored(saleID)
	r.Exec(1, `update sales set opens_at = $2, closes_at = $3 where id = $1`, saleID, sale.OpensAt.Add(-month),
		sale.ClosesAt.Add(-month))
	sale = r.Stored(saleID)
	for _, p := range sale.Partitions {
		if len(r.SaleHash(p, saleID)) == 0 {
			continue
		}
		err := r.Redis.HSet(r.Ctx(), r.Keys.Sale(p, saleID), "opens_ms", sale.OpensAt.UnixMilli(),
			"closes_ms", sale.ClosesAt.UnixMilli()).Err()
		if err != nil {
			r.Fatal(err)
		}
	}
}

// Vanish takes all that Redis has of a sale away, but for its events.
func (r *Rig) Vanish(sale *pipeline.Sale) {
	r.Helper()
	for _, p := range sale.Partitions {
		keys := r.Keys.ForSale(p, sale.ID)
		err := r.Redis.Del(r.Ctx(), keys.Sale, keys.Buyers, keys.Waitlist, keys.Waiting, keys.Ended).Err()
		if err != nil {
			r.Fatal(err)
		}
	}
}

// ClosedTampering is a damage to Postgres alone.
type ClosedTampering struct {
	Name     string
	Tamper   func(c *ClosedSaleRig)
	Findings []string
}

// ClosedTamperings are the ways in which Postgres can come to contradict itself about a sale that is over, each with a
// word of every finding, in their order.
var ClosedTamperings = []ClosedTampering{
	{
		"a live row deleted", func(c *ClosedSaleRig) { c.order("bob", `delete from orders where id = $1`) },
		[]string{"counts 3 units sold, its live orders hold 2", "1 accepts have no order"},
	},
	{
		"an ended row deleted", func(c *ClosedSaleRig) { c.order("fay", `delete from orders where id = $1`) },
		[]string{"1 releases are of orders that don't exist"},
	},
	{
		"an ended row deleted with its release", func(c *ClosedSaleRig) {
			c.order("fay", `with gone as (delete from orders where id = $1 returning id)
				delete from releases where order_id = (select id from gone)`)
		},
		[]string{"1 accepts have no order"},
	},
	{
		"the row of a rejected order deleted, with its release and its letter", func(c *ClosedSaleRig) {
			c.order("gus", `with gone as (delete from orders where id = $1 returning id),
				letter as (delete from dead_letters where order_id = (select id::text from gone))
				delete from releases where order_id = (select id from gone)`)
		},
		[]string{"1 accepts have no order"},
	},
	{
		"a row that nobody ordered", func(c *ClosedSaleRig) { c.plant(999, "confirmed") },
		[]string{"counts 3 units sold, its live orders hold 4", "1 orders are of accepts that were never counted"},
	},
	{
		"a row of another one's accept", func(c *ClosedSaleRig) { c.plant(1, "rejected") },
		[]string{"1 orders share their accept", "1 orders have ended without a release"},
	},
	{
		"units more in a live row", func(c *ClosedSaleRig) { c.order("bob", `update orders set quantity = 2 where id = $1`) },
		[]string{"counts 3 units sold, its live orders hold 4"},
	},
	{
		"units more in an ended row", func(c *ClosedSaleRig) {
			c.order("eve", `update orders set quantity = 2 where id = $1`)
		},
		[]string{"1 orders have a release of other units"},
	},
	{
		"an ended row of another buyer", func(c *ClosedSaleRig) {
			c.order("eve", `update orders set user_id = 'zoe' where id = $1`)
		},
		[]string{"1 orders have a release of other units, or of another buyer"},
	},
	{
		"a counter of sold units that is off", func(c *ClosedSaleRig) {
			c.Exec(1, `update sales set sold = sold + 1 where id = $1`, c.Sale.ID)
		},
		[]string{"counts 4 units sold, its live orders hold 3"},
	},
	{
		"more sold than there is", func(c *ClosedSaleRig) {
			c.Exec(0, `alter table sales drop constraint sales_sold_within_total,
				drop constraint sales_withdrawn_within_total`)
			c.Exec(1, `update sales set total = 2 where id = $1`, c.Sale.ID)
		},
		[]string{"3 units are in live orders, of 1 in all"},
	},
	{
		"an ended row that lives again", func(c *ClosedSaleRig) {
			c.withoutTrigger("fay", `update orders set status = 'awaiting_payment', closed_at = null where id = $1`)
		},
		[]string{"counts 3 units sold, its live orders hold 4", "1 live orders were given back"},
	},
	{
		"a row that was never paid", func(c *ClosedSaleRig) {
			c.withoutTrigger("bob", `update orders set status = 'paid', paid_at = now(), payment_id = 'x' where id = $1`)
		},
		[]string{"1 orders have a status that their changes don't lead to", "1 orders lack the payment", "not theirs"},
	},
	{
		"a row that ended without a release", func(c *ClosedSaleRig) {
			c.order("bob", `update orders set status = 'cancelled', closed_at = now() where id = $1`)
		},
		[]string{"counts 3 units sold, its live orders hold 2", "1 orders have ended without a release"},
	},
	{
		"a release deleted", func(c *ClosedSaleRig) { c.order("fay", `delete from releases where order_id = $1`) },
		[]string{"1 orders have ended without a release"},
	},
	{
		"a counter of withdrawn units that is off", func(c *ClosedSaleRig) {
			c.Exec(1, `update sales set withdrawn = withdrawn + 1 where id = $1`, c.Sale.ID)
		},
		[]string{"counts 2 units withdrawn, its partitions 1 and its releases 1"},
	},
	{
		"a return that no longer withdraws", func(c *ClosedSaleRig) {
			c.order("cat", `update releases set withdrawn = false where order_id = $1`)
		},
		[]string{"counts 1 units withdrawn, its partitions 1 and its releases 0"},
	},
	{
		"a number twice", func(c *ClosedSaleRig) {
			c.Exec(0, `alter table orders drop constraint orders_number_key`)
			c.order("eve", `update orders set number = (select number from orders where user_id = 'ann') where id = $1`)
		},
		[]string{"1 orders have a number that another one has"},
	},
	{
		"a buyer twice", func(c *ClosedSaleRig) {
			c.Exec(0, `drop index orders_live_buyer_key`)
			c.order("bob", `update orders set user_id = 'ann' where id = $1`)
		},
		[]string{"1 live orders are of a buyer who has another one"},
	},
	{
		"a payment deleted", func(c *ClosedSaleRig) { c.order("ann", `delete from payments where order_id = $1`) },
		[]string{"1 orders lack the payment", "1 orders name a payment that is not theirs"},
	},
	{
		"a watermark beyond the last order", func(c *ClosedSaleRig) {
			c.Exec(1, `update watermarks set seq = seq + 1 where sale_id = $1`, c.Sale.ID)
		},
		[]string{"1 accepts have no order"},
	},
	{
		"a watermark before the last order", func(c *ClosedSaleRig) {
			c.Exec(1, `update watermarks set seq = seq - 1 where sale_id = $1`, c.Sale.ID)
		},
		[]string{"1 orders are of accepts that were never counted"},
	},
	{
		"a lost accept that is not counted any more", func(c *ClosedSaleRig) {
			c.Exec(1, `update watermarks set lost = 0 where sale_id = $1`, c.Sale.ID)
		},
		[]string{"2 accepts have no order"},
	},
	{
		"a row on another partition", func(c *ClosedSaleRig) {
			c.order("bob", `update orders set partition = 3 where id = $1`)
		},
		[]string{"1 accepts have no order", "1 orders are on a partition that the sale is not on"},
	},
}

// order changes the one row of a buyer's order, or of what belongs to it.
func (c *ClosedSaleRig) order(user, query string) {
	c.Helper()
	c.Exec(1, query, c.Orders[user].OrderID)
}

// withoutTrigger changes a row as no program can.
func (c *ClosedSaleRig) withoutTrigger(user, query string) {
	c.Helper()
	c.Exec(0, `alter table orders disable trigger orders_transition`)
	c.order(user, query)
}

// plant adds an order of nobody.
func (c *ClosedSaleRig) plant(sequence int64, status string) {
	c.Helper()
	c.Exec(1, `
		insert into orders (sale_id, id, number, user_id, quantity, status, reason, partition, sequence, accepted_at,
			closed_at)
		values ($1, $2, 1, 'zoe', 1, $3, case $3 when 'rejected' then 'planted' else '' end, 1, $4, now(),
			case $3 when 'rejected' then now() end)`, c.Sale.ID, uuid.New(), status, sequence)
}

// Change changes the rig's sale, also to a window that is over, which operators can't.
func (r *Rig) Change(change pipeline.SaleChange) *pipeline.Sale {
	r.Helper()
	sale, err := r.Store.ChangeSale(r.Ctx(), r.Sale.ID, "test", change)
	if err == nil {
		err = r.Publisher.Publish(r.Ctx(), sale)
	}
	if err != nil {
		r.Fatal(err)
	}
	return sale
}
