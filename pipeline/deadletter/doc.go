// Package deadletter keeps the events that no worker could make an order of, and lets an operator resolve them.
//
// Read letter.go first (what a dead letter is), then burier.go (a worker or a verifier gives an event up: the letter, a
// rejected order and the release of its units, in one transaction). replayer.go, replay.go and repairs.go are the
// operator's side: a replay makes an order of a letter, with repaired fields, or the letter is discarded.
// replay_order.go is how that order is made, and replay_refusal.go the reasons why it is not.
//
// A replay relies on package lifecycle to give back what the letter's own order took, and on the same admission script
// as every other order. It stores the order's id before it asks for the order, so that repeating it makes no second
// one. The package retries nothing by itself: a letter waits until an operator asks.
package deadletter
