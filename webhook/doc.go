// Package webhook tells other systems what became of orders and sales: it delivers the events of Postgres' outbox as
// CloudEvents to the endpoints that an operator registers, signed by Standard Webhooks.
//
// What receivers can rely on: every event at least once, and of each endpoint's events the first arrival of each in the
// order in which they were committed. The id of an event stays the same however often it arrives.
//
// It guards against addresses inside the network (policy.go), because whoever registers an endpoint chooses where this
// process connects to.
package webhook
