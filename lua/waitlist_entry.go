package lua

// WaitlistEntry is a buyer's entry in the waitlist of a sale: all that is needed to make the order.
type WaitlistEntry struct {
	OrderID     string // of the order that will be made
	Quantity    int    // units
	Number      int64  // order number
	JoinedMS    int64  // Unix time in ms, by Redis' clock
	Ticket      int64  // the lower one is served first; from 1
	KeyHash     string // hash of the idempotency key; empty when there was none
	PayloadHash string // hash of what was asked for; empty when there was no key
}

// ParseWaitlistEntry reads a waitlist entry. It has the form of a slot, with the ticket in the place of the sequence.
func ParseWaitlistEntry(value string) (WaitlistEntry, error) {
	s, err := ParseSlot(value)
	if err != nil {
		return WaitlistEntry{}, err
	}
	return WaitlistEntry{
		OrderID: s.OrderID, Quantity: s.Quantity, Number: s.Number, JoinedMS: s.AcceptedMS, Ticket: s.Sequence,
		KeyHash: s.KeyHash, PayloadHash: s.PayloadHash,
	}, nil
}

// String is the entry as join.lua writes it; ParseWaitlistEntry reads it.
func (e WaitlistEntry) String() string {
	return Slot{
		OrderID: e.OrderID, Quantity: e.Quantity, Number: e.Number, AcceptedMS: e.JoinedMS, Sequence: e.Ticket,
		KeyHash: e.KeyHash, PayloadHash: e.PayloadHash,
	}.String()
}
