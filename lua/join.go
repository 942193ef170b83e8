package lua

import (
	"context"
	_ "embed" // the script is part of the program
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed join.lua
var joinSource string

var joinScript = redis.NewScript(joinSource)

// Place is a person's entry in the waitlist of a sale: what is needed to make the order without asking anybody.
type Place struct {
	OrderID     string // of the order that will be made
	Quantity    int    // units
	Number      int64  // order number
	JoinedMS    int64  // Unix time in ms, by Redis' clock
	Ticket      int64  // who has the lower one is served first; from 1
	KeyHash     string // hash of the idempotency key; empty when there was none
	PayloadHash string // hash of what was asked for; empty when there was no key
}

// ParsePlace reads a value of the hash of those who wait. It has the form of a slot, with the ticket for the sequence.
func ParsePlace(value string) (Place, error) {
	s, err := ParseSlot(value)
	if err != nil {
		return Place{}, err
	}
	return Place{
		OrderID: s.OrderID, Quantity: s.Quantity, Number: s.Number, JoinedMS: s.AcceptedMS, Ticket: s.Sequence,
		KeyHash: s.KeyHash, PayloadHash: s.PayloadHash,
	}, nil
}

// String is the entry as join.lua writes it; ParsePlace reads it.
func (p Place) String() string {
	return Slot{
		OrderID: p.OrderID, Quantity: p.Quantity, Number: p.Number, AcceptedMS: p.JoinedMS, Sequence: p.Ticket,
		KeyHash: p.KeyHash, PayloadHash: p.PayloadHash,
	}.String()
}

// JoinCode says what became of a request to wait.
type JoinCode string

// Every code. The first three come with the person's place, the fourth with the slot.
const (
	JoinJoined         JoinCode = "joined"          // the buyer waits, since now or since an earlier request
	JoinAlreadyWaiting JoinCode = "already-waiting" // for another number of units
	JoinKeyReused      JoinCode = "key-reused"      // likewise, with the same idempotency key
	JoinAlreadyOrdered JoinCode = "already-ordered" // the buyer holds an order
	JoinNoWaitlist     JoinCode = "no-waitlist"     // the sale has none
	JoinNotOpen        JoinCode = "not-open"        // before the window
	JoinClosed         JoinCode = "closed"          // after the window, or closed by an operator
	JoinPaused         JoinCode = "paused"          // paused by an operator
	JoinOverLimit      JoinCode = "over-limit"      // more units than one order may have, or than the sale has
	JoinAvailable      JoinCode = "available"       // so many units are free, and nobody waits
	JoinFull           JoinCode = "full"            // as many people wait as the sale allows
	JoinNotLoaded      JoinCode = "not-loaded"      // Redis does not hold the sale
	JoinUntrusted      JoinCode = "untrusted"       // nobody has verified what the server process holds
)

// JoinReply is the answer to a request to wait.
type JoinReply struct {
	Code        JoinCode
	Place       Place // of who waits
	Slot        Slot  // with JoinAlreadyOrdered
	Position    int64 // from 1; 0 for who does not wait
	OpensMS     int64 // Unix time in ms
	MaxQuantity int   // units in one order
}

// Join puts a buyer at the end of the list of those who wait. The last field of the request is not used. After an error,
// calling again with the same order id is safe, and the reply is the one that a first call would have had.
func Join(ctx context.Context, rdb redis.Scripter, keys AdmitKeys, r AdmitRequest) (JoinReply, error) {
	if err := r.check(); err != nil {
		return JoinReply{}, fmt.Errorf("join: %w", err)
	}
	reply, err := joinScript.Run(ctx, rdb, []string{keys.Sale, keys.Buyers, keys.Trusted, keys.Waitlist, keys.Waiting},
		r.OrderID, r.Number, r.UserID, r.Quantity, *orNone(&r.KeyHash), *orNone(&r.PayloadHash)).Result()
	if err != nil {
		return JoinReply{}, fmt.Errorf("join: %w", err)
	}
	decoded, err := decodeJoin(reply)
	if err != nil {
		return JoinReply{}, fmt.Errorf("join: %w", err)
	}
	return decoded, nil
}

func decodeJoin(reply any) (JoinReply, error) {
	items, err := replyArray(reply, 5)
	if err != nil {
		return JoinReply{}, err
	}
	var numbers [3]int64
	for i := range numbers {
		if numbers[i], err = replyInteger(items[2+i]); err != nil {
			return JoinReply{}, err
		}
	}
	code, err := replyText(items[0])
	if err != nil {
		return JoinReply{}, err
	}
	about, err := replyText(items[1])
	if err != nil {
		return JoinReply{}, err
	}
	r := JoinReply{Code: JoinCode(code), Position: numbers[0], OpensMS: numbers[1], MaxQuantity: int(numbers[2])}
	switch r.Code {
	case JoinJoined, JoinAlreadyWaiting, JoinKeyReused:
		r.Place, err = ParsePlace(about)
		if err == nil && r.Position < 1 {
			err = fmt.Errorf("unknown reply: code %s at position %d", code, r.Position)
		}
		return r, err
	case JoinAlreadyOrdered:
		r.Slot, err = ParseSlot(about)
		return r, err
	case JoinNoWaitlist, JoinNotOpen, JoinClosed, JoinPaused, JoinOverLimit, JoinAvailable, JoinFull, JoinNotLoaded, JoinUntrusted:
		if about != "" {
			return JoinReply{}, fmt.Errorf("unknown reply: code %s about %q", code, about)
		}
		return r, nil
	default:
		return JoinReply{}, unknownCode(code)
	}
}
