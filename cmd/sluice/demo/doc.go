// Package demo runs a whole flash sale on private servers, with thousands of buyers who behave as buyers do, kills a worker
// in the middle of its work, lets units that nobody pays for go to people who wait, and then proves that nothing was lost.
//
// The acts, in their order: announce and rush (acts), the death of a worker (accident), the waitlist (wait), payments and
// cancellations (pay), the rescue (rescue), the end of the time to pay and the hand-overs (turns), the late ones (acts).
//
// The proof does not rest on what the pipeline says of itself. The buyers and the payment provider remember what each of
// them was told (history, ends), Postgres and Redis are read with queries of the demo's own (rows, books), and the two are
// compared (check, checkpay, checkwait); the pipeline's audit comes on top of it.
package demo
