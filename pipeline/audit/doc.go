// Package audit proves that not one unit of a sale was lost, sold twice or leaked on an order's way. It only reads;
// package recovery repairs what it finds.
//
// An Auditor (auditor.go) looks at everything that Redis and Postgres have of one sale, its buyers included (look.go):
// the counters (counters.go), then the slots and the stream, then Postgres, and the waitlist (waitlist.go). books.go
// adds it all up, comparison.go compares slots and orders, checks.go says what is wrong, and report.go is the result.
// What both stores have lost is found by a third witness, the accept journals of the apis (witnesses.go). A Balancer
// (balance.go) checks the units of many sales every few seconds, from counters alone.
//
// A sale that is over may be gone from Redis. What Postgres says of it is then checked for contradictions (closed.go).
//
// Both run while buyers order: they rely on the order in which they read, on order ids to recognize what they see
// twice, and on the sequence of an accept to leave out what is later than the look. A report that is not exact, because
// something was released meanwhile, proves nothing about drift.
//
// An audit keeps neither the slots nor the orders of a sale in memory, but sums of fingerprints (fingerprint.go). Where
// the sums of Redis and Postgres differ, it reads once more, and compares a part of the sale one by one.
package audit
