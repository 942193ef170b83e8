package lua

import (
	"context"
	_ "embed" // the script is part of the program
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed join.lua
var joinSource string

var joinScript = newScript("join", groupSource+joinSource)

// JoinCode is the outcome of a request to wait.
type JoinCode string

// Every code. The first three come with the buyer's waitlist entry, the next two with the slot, and key-reused with the
// one that has the key.
const (
	JoinJoined         JoinCode = "joined"           // the buyer waits, since now or since an earlier request
	JoinAlreadyWaiting JoinCode = "already-waiting"  // for another number of units
	JoinKeyReused      JoinCode = "key-reused"       // likewise, or has ordered so, with the same idempotency key
	JoinAlreadyOrdered JoinCode = "already-ordered"  // the buyer has an order
	JoinEnded          JoinCode = "ended"            // the buyer had one under the same idempotency key, which has ended
	JoinNoWaitlist     JoinCode = "no-waitlist"      // the sale has none
	JoinNotOpen        JoinCode = "not-open"         // before the window
	JoinClosed         JoinCode = "closed"           // after the window, or closed by an operator
	JoinPaused         JoinCode = "paused"           // paused by an operator
	JoinOverLimit      JoinCode = "over-limit"       // more units than one order may have, or than the sale has
	JoinOverGroupLimit JoinCode = "over-group-limit" // more than a buyer may have in the sales of a group
	JoinAvailable      JoinCode = "available"        // enough units are free, and no buyer waits
	JoinFull           JoinCode = "full"             // as many buyers wait as the sale allows
	JoinNotLoaded      JoinCode = "not-loaded"       // Redis does not have the sale
	JoinUntrusted      JoinCode = "untrusted"        // the state of the server process is not verified
)

// JoinReply is the answer to a request to wait.
type JoinReply struct {
	Code        JoinCode
	Entry       WaitlistEntry // of a buyer who waits
	Slot        Slot          // with JoinAlreadyOrdered and JoinEnded; with JoinKeyReused of an order
	Held        int64         // with JoinOverGroupLimit: units in the other sales of the group
	Position    int64         // from 1; 0 for a buyer who does not wait
	OpensMS     int64         // Unix time in ms
	MaxQuantity int           // units in one order
}

// Join puts a buyer at the end of a sale's waitlist. The last field of the request is not used. After an error, calling
// again with the same order id is safe, and the reply is the one that a first call would have had.
func Join(ctx context.Context, rdb redis.Scripter, keys SaleKeys, r AdmitRequest) (reply JoinReply, err error) {
	defer named("join", &err)
	if err := r.check(); err != nil {
		return JoinReply{}, err
	}
	raw, err := joinScript.Run(ctx, rdb,
		[]string{keys.Sale, keys.Buyers, keys.Trusted, keys.Waitlist, keys.Waiting, keys.Ended},
		r.OrderID, r.Number, r.UserID, r.Quantity, *orNone(&r.KeyHash), *orNone(&r.PayloadHash)).Result()
	if err != nil {
		return JoinReply{}, err
	}
	return decodeJoin(raw)
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
	if r.Code == JoinKeyReused && r.Position == 0 {
		r.Slot, err = ParseSlot(about)
		return r, err
	}
	switch r.Code {
	case JoinJoined, JoinAlreadyWaiting, JoinKeyReused:
		r.Entry, err = ParseWaitlistEntry(about)
		if err == nil && r.Position < 1 {
			err = fmt.Errorf("unknown reply: code %s at position %d", code, r.Position)
		}
		return r, err
	case JoinAlreadyOrdered, JoinEnded:
		r.Slot, err = ParseSlot(about)
		return r, err
	case JoinOverGroupLimit:
		r.Held, err = decodeHeld(about)
		return r, err
	case JoinNoWaitlist, JoinNotOpen, JoinClosed, JoinPaused, JoinOverLimit, JoinAvailable, JoinFull, JoinNotLoaded,
		JoinUntrusted:
		if about != "" {
			return JoinReply{}, fmt.Errorf("unknown reply: code %s about %q", code, about)
		}
		return r, nil
	default:
		return JoinReply{}, unknownCode(code)
	}
}
