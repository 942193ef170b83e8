package demo

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
)

// fate is what a buyer does with an order.
type fate int

const (
	pays        fate = iota
	paysTwice        // the provider reports it twice at the same moment, under one webhook-id
	paysRenamed      // the provider reports the same payment again, under another webhook-id
	paysWrong        // the amount is not that of the order
	isForged         // somebody who does not have the secret reports a payment
	cancels
	forgets
)

// The shares of what buyers do with their orders; all others pay. Units of those who don't go to buyers who wait.
var fates = []struct {
	fate  fate
	share float64
}{
	{paysTwice, 0.08}, {paysRenamed, 0.04}, {paysWrong, 0.02}, {isForged, 0.02}, {cancels, 0.04}, {forgets, 0.12},
}

const (
	// waitersPerUnit is how many join the waitlist for each unit that will come free: more than will be served.
	waitersPerUnit = 1.5
	leaveShare     = 0.1 // of those who joined leave again
)

// ending is an order and what becomes of it.
type ending struct {
	buyer uint32
	order string
	fate  fate
}

// frees reports whether the order's unit will come free.
func (e ending) frees() bool { return e.fate >= paysWrong }

// assignFates gives every order a fate, each fate at least one, in the order in which buyers act. The orders in
// flight at a dead worker come first, and are paid: that money overtakes its order.
func assignFates(random *rand.Rand, owners map[string]uint32, inFlight []string) []ending {
	var first, rest []ending
	for _, id := range slices.Sorted(maps.Keys(owners)) {
		e := ending{buyer: owners[id], order: id}
		if slices.Contains(inFlight, id) {
			first = append(first, e)
		} else {
			rest = append(rest, e)
		}
	}
	random.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	next := 0
	for _, f := range fates {
		n := int(math.Ceil(f.share * float64(len(rest))))
		for ; n > 0 && next < len(rest); n-- {
			rest[next].fate = f.fate
			next++
		}
	}
	random.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	return append(first, rest...)
}
