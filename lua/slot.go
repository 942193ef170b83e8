package lua

import (
	"fmt"
	"strconv"
	"strings"
)

// Slot is a buyer's value in the buyers hash of a sale: the buyer's order, complete enough to answer a repeated request
// with the first one's receipt. A buyer without a slot is free to order.
type Slot struct {
	OrderID     string
	Quantity    int    // units
	Number      int64  // order number
	AcceptedMS  int64  // Unix time in ms, by Redis' clock
	Sequence    int64  // the sale's accept counter after this order, from 1
	KeyHash     string // hash of the idempotency key; empty when the buyer sent none
	PayloadHash string // hash of what the buyer asked for; empty when the buyer sent no key
}

const slotFields = 7

// The slots of ended orders are kept together, buyer by buyer, with a separator between two.
const (
	MaxEndedSlots       = 8 // of a buyer, the latest
	EndedSlotsSeparator = ";"
)

// ParseSlot reads the value of a buyers hash: seven fields separated by single spaces, "-" for a hash that is not
// there. Its error names the field that admit.lua can't have written.
func ParseSlot(value string) (Slot, error) {
	var fields [slotFields]string
	rest := value
	for i := range fields {
		var more bool
		fields[i], rest, more = strings.Cut(rest, " ")
		if fields[i] == "" || more == (i == slotFields-1) {
			return Slot{}, fmt.Errorf("slot %q: it does not have %d fields", value, slotFields)
		}
	}
	var numbers [4]int64
	for i, name := range [...]string{"quantity", "number", "accepted_ms", "sequence"} {
		n, err := strconv.ParseInt(fields[1+i], 10, 64)
		if err != nil || n < 1 {
			return Slot{}, fmt.Errorf("slot %q: %s is not a positive integer", value, name)
		}
		numbers[i] = n
	}
	return Slot{
		OrderID:     fields[0],
		Quantity:    int(numbers[0]),
		Number:      numbers[1],
		AcceptedMS:  numbers[2],
		Sequence:    numbers[3],
		KeyHash:     orAbsent(fields[5]),
		PayloadHash: orAbsent(fields[6]),
	}, nil
}

// String is the slot as admit.lua writes it; ParseSlot reads it.
func (s Slot) String() string {
	return fmt.Sprintf("%s %d %d %d %d %s %s", s.OrderID, s.Quantity, s.Number, s.AcceptedMS, s.Sequence,
		*orNone(&s.KeyHash), *orNone(&s.PayloadHash))
}

func orAbsent(hash string) string {
	if hash == none {
		return ""
	}
	return hash
}
