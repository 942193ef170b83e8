package pipeline_test

import (
	"fmt"

	"sluice/lua"
	"sluice/pipeline"
)

// busy reports whether an answer is that of a machine that is busy with something else: an order is still queued, or a store
// did not answer within its seconds. The buyer asks again.
func busy(err error) bool {
	return pipeline.KindOf(err) == pipeline.KindOverloaded || pipeline.KindOf(err) == pipeline.KindUnavailable
}

// end closes an order in Postgres, as an expiry does, without giving its slot back.
func (r *rig) end(orderID string) {
	r.Helper()
	r.exec(1, `
		with closed as (
			update orders set status = 'expired', closed_at = now() where id = $1 and status = 'awaiting_payment'
			returning sale_id, id, sequence, user_id, quantity, partition
		), uncounted as (
			update sales s set sold = s.sold - c.quantity from closed c where s.id = c.sale_id
		)
		insert into releases (sale_id, order_id, sequence, user_id, quantity, partition, reason)
		select sale_id, id, sequence, user_id, quantity, partition, 'expired' from closed`, orderID)
}

func (r *rig) releaseKeys(p pipeline.Partition, saleID string) lua.ReleaseKeys {
	return lua.ReleaseKeys{
		Sale: r.keys.Sale(p, saleID), Buyers: r.keys.Buyers(p, saleID), Trusted: r.keys.Trusted(p), Orders: r.keys.Orders(p),
		Waitlist: r.keys.Waitlist(p, saleID), Waiting: r.keys.Waiting(p, saleID),
	}
}

// release gives an ended order's stock and slot back, and expects it to have held them.
func (r *rig) release(user, orderID string) {
	r.Helper()
	p := r.sale.PartitionOf(user)
	released, _, err := lua.Release(r.ctx(), r.rdb, r.releaseKeys(p, r.sale.ID), r.sale.ID, 1000, []lua.ReleaseItem{{UserID: user, OrderID: orderID}})
	if err != nil || !released[0] {
		r.Fatalf("release the order of %s: %v, %v", user, released, err)
	}
}

func (r *rig) payments() *pipeline.PaymentService {
	return r.paymentsWith(r.store)
}

func paymentFor(receipt *pipeline.Receipt, n int) pipeline.Payment {
	return pipeline.Payment{
		WebhookID: fmt.Sprintf("msg_%s_%d", receipt.OrderID, n), PaymentID: "pay_" + receipt.OrderID, SaleID: receipt.SaleID,
		OrderID: receipt.OrderID, Amount: 500, Currency: "EUR", Actor: pipeline.WebhookActor,
	}
}

func (r *rig) notifier() *pipeline.Notifier { return pipeline.NewNotifier(r.rdb, r.keys, r.log) }

func (r *rig) handOvers() *pipeline.HandOverNotifier {
	return pipeline.NewHandOverNotifier(r.notifier(), r.metrics.Notification, r.log)
}

func (r *rig) handOver() *pipeline.HandOver {
	return pipeline.NewHandOver(r.rdb, r.keys, r.handOvers())
}

// paymentsWith is the payment service over a store of the test's.
func (r *rig) paymentsWith(store pipeline.PaymentStore) *pipeline.PaymentService {
	return pipeline.NewPaymentService(pipeline.PaymentConfig{
		Redis: r.rdb, Keys: r.keys, Sales: r.store, Store: store, Notifier: r.notifier(), Metrics: r.metrics.Payment, Log: r.log,
	})
}

func (r *rig) waitlist() *pipeline.Waitlist {
	return pipeline.NewWaitlist(r.rdb, r.keys, r.store, pipeline.NewLookup(r.rdb, r.keys, r.store), r.handOvers(), r.metrics.Waitlist)
}

// joins lets a buyer wait and expects that he does.
func (r *rig) joins(w *pipeline.Waitlist, user string, quantity int) pipeline.WaitDecision {
	r.Helper()
	d, err := w.Join(r.ctx(), r.sale, pipeline.OrderRequest{UserID: user, Quantity: quantity})
	if err != nil || d.Result != pipeline.WaitJoined {
		r.Fatalf("join of %s: got %+v, %v", user, d, err)
	}
	return d
}

// queue is who waits in Redis, in the order in which they are served.
func (r *rig) queue() []string {
	r.Helper()
	users := []string{}
	for _, p := range r.sale.Partitions {
		of, err := r.rdb.ZRange(r.ctx(), r.keys.Waitlist(p, r.sale.ID), 0, -1).Result()
		if err != nil {
			r.Fatal(err)
		}
		users = append(users, of...)
	}
	return users
}
