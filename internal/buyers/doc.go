// Package buyers simulates the buyers of a sale and their payment provider, and proves that they were served as they
// were answered. The demo, the chaos run and the compose test share it.
//
// A Client sends requests as buyers do: over kept connections, with an Idempotency-Key, and again where there was no
// answer. A Planner says who asks when. A History remembers every answer; nothing in it comes from a store or a log.
// Stores are what Postgres and Redis have, read with queries of this package's own: if the pipeline were wrong about
// what is there, these would not be. Prove compares the two.
package buyers
