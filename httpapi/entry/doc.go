// Package entry gives and verifies entry tickets: what a buyer must have asked for before an order, where the sale says
// so. A ticket proves three things of one buyer and one sale: who asked (no ticket works for another buyer), that the
// shop's own check let the buyer pass, if there is one, and whether the buyer asked before the opening or after it.
//
// Nothing is stored. A ticket is a message authentication code over all that it stands for, so that any api verifies
// what another has given, without a round trip. That there is one per buyer follows from that: a second one says the
// same, and both are good for the same buyer, whose orders the sale limits.
//
// Entry tickets have nothing to do with the tickets of a waitlist, which are the numbers by which its buyers are
// served.
//
// Read ticket.go (what a ticket is), ring.go (the keys), turn.go (when it is good), service.go (the two questions: give
// one, check one), then hook.go (the shop's own check).
package entry
