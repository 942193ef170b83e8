// Package lifecycle is what happens to an order after its accept, apart from payment: it is looked up, cancelled by its
// buyer or an operator, expires unpaid, is returned after it was paid, and gives its units back.
//
// Read lookup.go first (where an order is found while it moves from Redis to Postgres), then cancel.go and expire.go,
// the two ways in which an unpaid order ends, extend.go (more time to pay), return.go (the end of a paid one), and
// releaser.go, which brings the units and slots of ended orders back to Redis.
//
// Every end of an order is a transaction in Postgres that writes a release beside it; Redis learns of it only through
// the Releaser, whose script gives a slot back once. So all of this may run in several processes at once, die anywhere
// and be repeated. The package accepts no orders and persists none: that is done by packages admission and worker.
package lifecycle
