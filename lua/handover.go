package lua

import (
	_ "embed" // it is part of the scripts that free units
	"fmt"
)

// handOverSource stands at the head of every script that can free units: release, adjust, leave.
//
//go:embed handover.lua
var handOverSource string

// MaxHandOver is the most orders that one call makes for buyers who wait (most_handed_over in handover.lua).
const MaxHandOver = 100

// HandedOver is what a call did for the buyers who wait.
type HandedOver struct {
	// Orders are the ids of the orders that it made, those of the lowest tickets first.
	Orders []string
	// Dropped are users that it took off the waitlist without an order, because of an entry or slot that can't be right.
	Dropped []string
}

// More reports whether the call stopped because it had made as many orders as one call may.
func (h HandedOver) More() bool { return len(h.Orders)+len(h.Dropped) >= MaxHandOver }

func decodeHandedOver(orders, dropped any) (h HandedOver, err error) {
	if h.Orders, err = replyHandedOver(orders); err != nil {
		return HandedOver{}, err
	}
	if h.Dropped, err = replyHandedOver(dropped); err != nil {
		return HandedOver{}, err
	}
	return h, nil
}

// replyHandedOver returns nil for an empty array.
func replyHandedOver(reply any) ([]string, error) {
	texts, err := replyTexts(reply)
	switch {
	case err != nil || len(texts) == 0:
		return nil, err
	case len(texts) > MaxHandOver:
		return nil, fmt.Errorf("unknown reply: want an array of at most %d, got %d", MaxHandOver, len(texts))
	default:
		return texts, nil
	}
}
