// Package webhook reports to other systems what became of orders and sales: it delivers the events of Postgres' outbox
// as CloudEvents to the endpoints that an operator registers, signed by Standard Webhooks.
//
// Receivers can rely on this: every event arrives at least once, and the first arrivals at an endpoint come in the
// order in which the events were committed. The id of an event stays the same however often it arrives.
//
// The package refuses addresses inside the network (policy.go), because whichever user registers an endpoint chooses
// where this process connects to.
package webhook
