package lua

import (
	_ "embed" // it is part of the scripts that free units
	"fmt"
)

// handOverSource stands at the head of every script that can free units: release, adjust, leave.
//
//go:embed handover.lua
var handOverSource string

// MaxHandOver is the most orders that one call makes for those who wait (most_handed_over in handover.lua).
const MaxHandOver = 100

// HandedOver is what a call did for those who wait.
type HandedOver struct {
	Orders  []string // ids of the orders that it made, those who waited longest first
	Dropped []string // user ids that it took off the list without an order: what Redis holds of them can't be true
}

// More reports whether the call stopped because it had made as many orders as one call may.
func (h HandedOver) More() bool { return len(h.Orders)+len(h.Dropped) >= MaxHandOver }

func decodeHandedOver(orders, dropped any) (HandedOver, error) {
	var h HandedOver
	for _, list := range []struct {
		reply any
		into  *[]string
	}{{orders, &h.Orders}, {dropped, &h.Dropped}} {
		items, ok := list.reply.([]any)
		if !ok || len(items) > MaxHandOver {
			return HandedOver{}, fmt.Errorf("unknown reply: want an array of at most %d, got %T %.200v", MaxHandOver, list.reply, list.reply)
		}
		for _, item := range items {
			text, err := replyText(item)
			if err != nil {
				return HandedOver{}, err
			}
			*list.into = append(*list.into, text)
		}
	}
	return h, nil
}
