// Package chaos runs a flash sale on private servers while everything around it breaks, two things at a time, and then
// proves that no order was lost, duplicated, invented or sold beyond the stock.
//
// A seed makes the plan: which pairs of faults, where, when, for how long. Real processes (two APIs, three workers) and
// real servers run; each process reaches Redis and Postgres through a proxy of its own, and buyers reach each API
// through one, so that every connection can be cut, slowed or frozen alone. Buyers behave as buyers do, repeat what got
// no answer with the same Idempotency-Key, and remember what they were answered.
//
// The verdict compares that history with the rows in Postgres and the slots in Redis (see package buyers). The
// pipeline's audit comes on top; it alone would believe the pipeline's own counts.
//
// Files: kinds.go and plan.go (what is to happen), scheduler.go (when it does), faults.go, machines.go, data_loss.go
// and restore.go (how), pairs.go and report.go (what came of it).
package chaos
