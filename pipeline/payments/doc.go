// Package payments decides what a payment does to its order: a provider's webhook or an operator reports it, Postgres
// records it once, and the order becomes paid, or the payment is refused or due to be paid back.
//
// Read payment.go first (what is reported, and its limits), then outcome.go and decision.go (what becomes of it),
// service.go (the request), and waiting_payments.go with queued_orders.go (the job that decides payments which overtook
// their orders, and how it knows that an order does not exist).
//
// It relies on the store to lock the order's row while a decision is applied, and on the stream to have every accepted
// order until its row exists. It checks no signature of a webhook (package httpapi does) and moves no money.
package payments
