// Package resubmit brings back accepted orders that Redis has lost before Postgres got them: after a restart from an
// older file, or after a fail-over to a late replica. It comes after a verification of Redis (package recovery) has
// begun a new generation, and before the orders are persisted.
//
// Two processes know of such orders and submit them again, each through a Resubmitter: a worker the events that it had
// fetched, an api what its accept journal holds (Journaled). An order that has a row in
// Postgres, or still has its slot in Redis, is left alone. One that was lost takes its units again, and a new event
// carries it on. Where its units are gone it is rejected, with a dead letter.
//
// It relies on order ids, by which a script recognises an order that it has accepted before, so that submitting it
// twice is harmless. It does not remember accepts, and does not notice by itself that Redis lost anything. All of it is
// in resubmit.go.
package resubmit
