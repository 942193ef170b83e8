package demo

import (
	"math"
	"math/rand/v2"
	"slices"
)

// fate is what a buyer does with an order.
type fate int

const (
	pays        fate = iota
	paysTwice        // the provider tells it twice at the same moment, under one webhook-id
	paysRenamed      // the provider tells of the same payment again, under another webhook-id
	paysWrong        // the amount is not that of the order
	isForged         // somebody who does not have the secret tells of a payment
	cancels
	forgets
)

// The shares of what buyers do with their orders; all others pay. Units of those who don't go to people who wait.
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

// pledge is an order and what becomes of it.
type pledge struct {
	buyer   int
	orderID string
	fate    fate
}

// frees reports whether the order's unit will come free.
func (p pledge) frees() bool { return p.fate >= paysWrong }

// deal gives every order a fate, each fate at least one, in the order in which buyers act. The orders that a dead worker held
// come first, and are paid: that money overtakes its order.
func deal(random *rand.Rand, owners map[string]int, held []string) []pledge {
	var first, rest []pledge
	for _, id := range sortedKeys(owners) {
		p := pledge{buyer: owners[id], orderID: id}
		if slices.Contains(held, id) {
			first = append(first, p)
		} else {
			rest = append(rest, p)
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

func sortedKeys(m map[string]int) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
