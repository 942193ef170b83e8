package lua

import (
	"context"
	_ "embed" // the script is part of the program
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed admit.lua
var admitSource string

var admitScript = newScript("admit", groupSource+admitSource)

// MaxAdmitBatch bounds one Admit. The server answers no other client meanwhile: 128 requests take it about half a
// millisecond, and larger batches gain nothing per request.
const MaxAdmitBatch = 128

const (
	admitHeader    = 4 // arguments before the first request
	admitArguments = 7 // arguments of each request
	replyHeader    = 5 // elements before the first outcome
	replyOutcome   = 2 // elements of each outcome
)

// AdmitRequest is one buyer's request for units. The last three may be empty.
type AdmitRequest struct {
	OrderID     string // made by the caller and the same in every retry, which is what makes a retry safe
	Number      int64  // order number, at least 1
	UserID      string
	Quantity    int    // units, at least 1
	KeyHash     string // hash of the idempotency key; no whitespace
	PayloadHash string // hash of what the buyer asked for, compared when the key is the same; no whitespace
	TraceParent string // W3C trace context, when the request is sampled
}

// AdmitCode is the outcome of one request.
type AdmitCode string

// Every code. The first five come with the buyer's slot.
const (
	AdmitAccepted       AdmitCode = "accepted"         // the slot is this order's, now or since an earlier try
	AdmitReplayed       AdmitCode = "replayed"         // same idempotency key and payload as the order in the slot
	AdmitEnded          AdmitCode = "ended"            // likewise, and the order has ended since
	AdmitAlreadyOrdered AdmitCode = "already-ordered"  // the buyer's slot holds another order
	AdmitKeyReused      AdmitCode = "key-reused"       // same idempotency key as the order in the slot, other payload
	AdmitSoldOut        AdmitCode = "sold-out"         // fewer units left than asked for, or buyers wait for them
	AdmitNotOpen        AdmitCode = "not-open"         // before the window
	AdmitClosed         AdmitCode = "closed"           // after the window, or closed by an operator
	AdmitPaused         AdmitCode = "paused"           // paused by an operator
	AdmitOverLimit      AdmitCode = "over-limit"       // more units than the sale allows in one order
	AdmitOverGroupLimit AdmitCode = "over-group-limit" // more than a buyer may have in the sales of a group
	AdmitBacklogFull    AdmitCode = "backlog-full"     // too many events wait for the workers; try again later
	AdmitNotLoaded      AdmitCode = "not-loaded"       // Redis does not have the sale; this never means sold out
	AdmitUntrusted      AdmitCode = "untrusted"        // the state of this server process is not verified
)

// AdmitOutcome is the answer to one request.
type AdmitOutcome struct {
	Code AdmitCode
	Slot Slot  // set for the first five codes
	Held int64 // with AdmitOverGroupLimit: units that the buyer has, or waits for, in the other sales of the group
}

// AdmitReply is the answer to a batch. Stock, window and limit are zero when the sale is not loaded.
type AdmitReply struct {
	NowMS       int64 // Unix time in ms by Redis' clock, at which the batch was decided
	Stock       int64 // units left after the batch
	OpensMS     int64 // Unix time in ms
	ClosesMS    int64 // Unix time in ms
	MaxQuantity int   // units in one order
	Outcomes    []AdmitOutcome
}

// Admit decides 1 to MaxAdmitBatch requests for one sale on one partition, in order and as one atomic step; Outcomes[i]
// answers reqs[i]. The same buyer twice in a batch is decided as by two calls. Nothing is accepted beyond maxEvents (at
// least 1) in the partition's stream.
//
// After an error the requests may or may not have been decided: call again with the same order ids, and the outcome is
// the one that a first call would have had. The requests must not be changed while Admit runs.
func Admit(
	ctx context.Context, rdb redis.Scripter, keys SaleKeys, saleID string, maxEvents int64, reqs []AdmitRequest,
) (AdmitReply, error) {
	return admit(ctx, rdb, keys, admitCall{saleID, "new", maxEvents, reqs})
}

// Resubmit is Admit for accepts that buyers were answered and that Redis may have lost since. One that it still has
// is accepted, with its first slot and without a second event; one that is lost is accepted anew while units are left
// and the buyer has no other order. Whether the sale is open does not matter, nor its limit, nor the backlog: they did
// at the first accept. It also works while a verified server is open for lost accepts only.
func Resubmit(
	ctx context.Context, rdb redis.Scripter, keys SaleKeys, saleID string, reqs []AdmitRequest,
) (AdmitReply, error) {
	return admit(ctx, rdb, keys, admitCall{saleID, "resubmit", 1, reqs})
}

// admitCall are the arguments of the script.
type admitCall struct {
	saleID, mode string
	maxEvents    int64
	requests     []AdmitRequest
}

func admit(ctx context.Context, rdb redis.Scripter, keys SaleKeys, call admitCall) (reply AdmitReply, err error) {
	defer named("admit", &err)
	args, err := call.args(keys.Fence)
	if err != nil {
		return AdmitReply{}, err
	}
	raw, err := admitScript.Run(ctx, rdb,
		[]string{
			keys.Sale, keys.Buyers, keys.Orders, keys.Trusted, keys.Waitlist, keys.Waiting, keys.Generation,
			keys.Ended,
		}, args...).Result()
	if err != nil {
		return AdmitReply{}, err
	}
	return decodeAdmit(raw, len(call.requests))
}

// args points at the requests' fields instead of copying them: boxing seven values per request was most of what a batch
// allocated.
func (c admitCall) args(fence int64) ([]any, error) {
	if err := checkBatch(len(c.requests), MaxAdmitBatch); err != nil {
		return nil, err
	}
	if err := checkMaxEvents(c.maxEvents); err != nil {
		return nil, err
	}
	args := make([]any, 0, admitHeader+admitArguments*len(c.requests))
	args = append(args, c.saleID, c.mode, c.maxEvents, fence)
	for i := range c.requests {
		r := &c.requests[i]
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("request %d: %w", i, err)
		}
		args = append(args, &r.OrderID, &r.Number, &r.UserID, &r.Quantity,
			orNone(&r.KeyHash), orNone(&r.PayloadHash), &r.TraceParent)
	}
	return args, nil
}

func (r *AdmitRequest) check() error {
	switch {
	case r.Number < 1:
		return fmt.Errorf("order number %d: use at least 1", r.Number)
	case r.Quantity < 1:
		return fmt.Errorf("quantity %d: use at least 1", r.Quantity)
	case r.UserID == "":
		return fmt.Errorf("user id is empty")
	}
	if err := checkWord("order id", r.OrderID); err != nil {
		return err
	}
	if err := checkOptionalWord("key hash", r.KeyHash); err != nil {
		return err
	}
	return checkOptionalWord("payload hash", r.PayloadHash)
}

func decodeAdmit(reply any, requests int) (AdmitReply, error) {
	items, err := replyArray(reply, replyHeader+replyOutcome*requests)
	if err != nil {
		return AdmitReply{}, err
	}
	var numbers [replyHeader]int64
	for i := range numbers {
		if numbers[i], err = replyInteger(items[i]); err != nil {
			return AdmitReply{}, err
		}
	}
	outcomes := make([]AdmitOutcome, requests)
	for i := range outcomes {
		at := replyHeader + replyOutcome*i
		if outcomes[i], err = decodeOutcome(items[at], items[at+1]); err != nil {
			return AdmitReply{}, fmt.Errorf("outcome %d: %w", i, err)
		}
	}
	return AdmitReply{
		NowMS:       numbers[0],
		Stock:       numbers[1],
		OpensMS:     numbers[2],
		ClosesMS:    numbers[3],
		MaxQuantity: int(numbers[4]),
		Outcomes:    outcomes,
	}, nil
}

func decodeOutcome(code, slot any) (AdmitOutcome, error) {
	name, err := replyText(code)
	if err != nil {
		return AdmitOutcome{}, err
	}
	value, err := replyText(slot)
	if err != nil {
		return AdmitOutcome{}, err
	}
	switch c := AdmitCode(name); c {
	case AdmitAccepted, AdmitReplayed, AdmitEnded, AdmitAlreadyOrdered, AdmitKeyReused:
		slot, err := ParseSlot(value)
		return AdmitOutcome{Code: c, Slot: slot}, err
	case AdmitOverGroupLimit:
		held, err := decodeHeld(value)
		return AdmitOutcome{Code: c, Held: held}, err
	case AdmitSoldOut, AdmitNotOpen, AdmitClosed, AdmitPaused, AdmitOverLimit, AdmitBacklogFull, AdmitNotLoaded,
		AdmitUntrusted:
		if value != "" {
			return AdmitOutcome{}, fmt.Errorf("unknown reply: code %s with slot %q", c, value)
		}
		return AdmitOutcome{Code: c}, nil
	default:
		return AdmitOutcome{}, unknownCode(name)
	}
}
