// Package waitlist lets buyers wait for units of a sale that is sold out, and makes orders for them as units come free.
//
// An entry is one buyer's wait for one number of units. Its ticket is the order of service, the lower one first; its
// position, from 1, is how many are served before it plus one, and changes as others are served or leave. Read
// decision.go (the answers), then service.go (join, look, leave), order.go (what a buyer sees of the order while it
// is waited for) and hand_over.go (the job that serves the list where
// no release did).
//
// Redis decides, in its scripts, and a hand-over is an accept like any other: its event is in the stream, and a worker
// persists it. Postgres records who joined and who left, so that a Redis that lost its data is rebuilt with the same
// entries (package recovery). The package does not release units: most hand-overs happen in the script of a release.
package waitlist
