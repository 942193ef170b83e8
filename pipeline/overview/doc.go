// Package overview is what operators see of an installation at a glance: what waits in the streams and how old it is,
// who works on it, what Redis is trusted with, and where the units of a sale are. It only reads, and each reading costs
// the same for ten orders and for ten million, or is made more rarely.
//
// Read glance.go (the whole at one look), then streams.go and workers.go (Redis), store.go (what it asks Postgres), and
// units.go (one sale). parts.go is what Redis has of one order.
package overview
