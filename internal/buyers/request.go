package buyers

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// NoKey is the key of a request without an Idempotency-Key.
const NoKey = -1

// Request is one order request of a buyer.
type Request struct {
	Sale     string
	Buyer    uint32
	Key      int16 // which of the buyer's Idempotency-Keys; or NoKey
	Quantity uint8
	Abandon  bool // the client gives up soon after the request was sent: it may well be carried out
}

// User is the id of the request's buyer.
func (r Request) User() string { return UserOf(r.Buyer) }

// UserOf is the id of the n-th buyer.
func UserOf(n uint32) string { return fmt.Sprintf("buyer-%06d", n) }

// numberOf is the opposite of UserOf. It is false for a user who is none of our buyers.
func numberOf(user string) (n uint32, ok bool) {
	number, err := strconv.ParseUint(strings.TrimPrefix(user, "buyer-"), 10, 32)
	return uint32(number), err == nil && UserOf(uint32(number)) == user
}

// Outcome is what came of one order request.
type Outcome uint8

// The outcomes.
const (
	NoAnswer       Outcome = iota // or one that asks for patience: the order may or may not stand
	Accepted                      // 202
	AlreadyOrdered                // 409, names the order that the buyer has
	SoldOut                       // 409
	NotOpen                       // 409
	Closed                        // 409
	Unexpected                    // any other answer: nobody should get it
)

const outcomes = int(Unexpected) + 1

// Code is the outcome's name, for refusals the code of the problem.
func (o Outcome) Code() string {
	return [...]string{
		"no answer", "accepted", "already-ordered", "sold-out", "sale-not-open", "sale-closed",
		"unexpected",
	}[o]
}

// Definite reports whether the outcome says yes or no. Otherwise the buyer asks again with the same key.
func (o Outcome) Definite() bool { return o != NoAnswer && o != Unexpected }

// refusals are the outcomes by their problem's code.
var refusals = map[string]Outcome{
	AlreadyOrdered.Code(): AlreadyOrdered, SoldOut.Code(): SoldOut, NotOpen.Code(): NotOpen, Closed.Code(): Closed,
}

// patience are the codes of problems that ask to come again.
var patience = []string{"overloaded", "backlog-full", "store-unavailable", "sale-not-loaded"}

// outcomeOf sorts an answer to an order request.
func outcomeOf(a Answer) Outcome {
	refusal := refusals[a.Code]
	switch {
	case a.Status == http.StatusAccepted && a.OrderID != "" && a.State == "queued":
		return Accepted
	case a.Status == http.StatusConflict && refusal != NoAnswer && (refusal != AlreadyOrdered || a.OrderID != ""):
		return refusal
	case a.Status == http.StatusTooManyRequests, a.Status == http.StatusServiceUnavailable &&
		slices.Contains(patience, a.Code):
		return NoAnswer
	default:
		return Unexpected
	}
}
