package pipelinetest

import (
	"fmt"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/notification"
	"sluice/pipeline/payments"
	"sluice/pipeline/waitlist"
)

// Busy reports whether an answer is that of a machine that is busy with something else: an order is still queued, or a
// store did not answer within its seconds. The buyer asks again.
func Busy(err error) bool {
	return pipeline.KindOf(err) == pipeline.KindOverloaded || pipeline.KindOf(err) == pipeline.KindUnavailable
}

// End closes an order in Postgres, as an expiry does, without giving its slot back.
func (r *Rig) End(orderID string) {
	r.Helper()
	r.Exec(1, `
		with closed as (
			update orders set status = 'expired', closed_at = now() where id = $1 and status = 'awaiting_payment'
			returning sale_id, id, sequence, user_id, quantity, partition
		), uncounted as (
			update sales s set sold = s.sold - c.quantity from closed c where s.id = c.sale_id
		)
		insert into releases (sale_id, order_id, sequence, user_id, quantity, partition, reason)
		select sale_id, id, sequence, user_id, quantity, partition, 'expired' from closed`, orderID)
}

// Release gives an ended order's stock and slot back, and expects it to have had them.
func (r *Rig) Release(user, orderID string) {
	r.Helper()
	p := r.Sale.PartitionOf(user)
	released, _, err := lua.Release(
		r.Ctx(), r.Redis, r.Keys.ForSale(p, r.Sale.ID), r.Sale.ID, 1000, []lua.ReleaseItem{{UserID: user, OrderID: orderID}},
	)
	if err != nil || !released[0] {
		r.Fatalf("release the order of %s: %v, %v", user, released, err)
	}
}

// Payments is the payment service over the rig's store.
func (r *Rig) Payments() *payments.Service {
	return r.PaymentsWith(r.Store)
}

// PaymentFor is a payment for an accepted order.
func PaymentFor(receipt *admission.Receipt, n int) payments.Payment {
	return payments.Payment{
		WebhookID: fmt.Sprintf("msg_%s_%d", receipt.OrderID, n), PaymentID: "pay_" + receipt.OrderID, SaleID: receipt.SaleID,
		OrderID: receipt.OrderID, Amount: 500, Currency: "EUR", Actor: payments.WebhookActor,
	}
}

// Notifier publishes the rig's changes.
func (r *Rig) Notifier() *notification.Notifier {
	return notification.NewNotifier(r.Redis, r.Keys, r.Logger)
}

// HandOvers publishes what scripts handed over.
func (r *Rig) HandOvers() *notification.HandOverNotifier {
	return notification.NewHandOverNotifier(r.Notifier(), r.Metrics.Notification, r.Logger)
}

// HandOver hands free units over to waitlists.
func (r *Rig) HandOver() *waitlist.HandOver {
	return waitlist.NewHandOver(r.Redis, r.Keys, r.HandOvers())
}

// PaymentsWith is the payment service over a store of the test's.
func (r *Rig) PaymentsWith(store payments.Store) *payments.Service {
	return payments.NewService(payments.Config{
		Redis: r.Redis, Keys: r.Keys, Sales: r.Store, Store: store, Notifier: r.Notifier(),
		Metrics: r.Metrics.Payment, Log: r.Logger,
	})
}

// Waitlist is the waitlist service over the rig's stores.
func (r *Rig) Waitlist() *waitlist.Service {
	return waitlist.NewService(
		r.Redis, r.Keys, r.Store, lifecycle.NewLookup(r.Redis, r.Keys, r.Store), r.HandOvers(), r.Metrics.Waitlist,
	)
}

// Joins puts a buyer on the waitlist and expects that it is accepted.
func (r *Rig) Joins(w *waitlist.Service, user string, quantity int) waitlist.Decision {
	r.Helper()
	d, err := w.Join(r.Ctx(), r.Sale, pipeline.OrderRequest{UserID: user, Quantity: quantity})
	if err != nil || d.Result != waitlist.Joined {
		r.Fatalf("join of %s: got %+v, %v", user, d, err)
	}
	return d
}

// Queue is the users on the waitlist in Redis, in the order in which they are served.
func (r *Rig) Queue() []string {
	r.Helper()
	users := []string{}
	for _, p := range r.Sale.Partitions {
		of, err := r.Redis.ZRange(r.Ctx(), r.Keys.Waitlist(p, r.Sale.ID), 0, -1).Result()
		if err != nil {
			r.Fatal(err)
		}
		users = append(users, of...)
	}
	return users
}
