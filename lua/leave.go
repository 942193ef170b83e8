package lua

import (
	"context"
	_ "embed" // the script is part of the program
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed leave.lua
var leaveSource string

var leaveScript = redis.NewScript(handOverSource + leaveSource)

// LeaveCode says what became of a person who wants to wait no longer.
type LeaveCode string

// Every code of Leave that is not an error.
const (
	LeaveLeft    LeaveCode = "left"    // waits no longer
	LeaveAbsent  LeaveCode = "absent"  // does not wait for this order, and holds no slot for it
	LeaveOrdered LeaveCode = "ordered" // the order was made before; nothing changed

	leaveNotLoaded LeaveCode = "not-loaded"
	leaveUntrusted LeaveCode = "untrusted"
)

// Leave takes a buyer off the list of those who wait, if it is this order that the buyer waits for, and hands over what
// others may have now, as Release does. The ticket is one that the call took, 0 with LeaveOrdered: a server that counts
// fewer is older than the leave. After an error, calling again is safe: the code may then be LeaveAbsent for what the first
// call did. Errors besides: ErrNotLoaded, ErrUntrusted.
func Leave(
	ctx context.Context, rdb redis.Scripter, keys ReleaseKeys, saleID string, maxEvents int64, userID, orderID string,
) (code LeaveCode, ticket int64, handed HandedOver, err error) {
	if code, ticket, handed, err = leave(ctx, rdb, keys, saleID, maxEvents, userID, orderID); err != nil {
		return "", 0, HandedOver{}, fmt.Errorf("leave: %w", err)
	}
	return code, ticket, handed, nil
}

func leave(
	ctx context.Context, rdb redis.Scripter, keys ReleaseKeys, saleID string, maxEvents int64, userID, orderID string,
) (code LeaveCode, ticket int64, handed HandedOver, err error) {
	if err := checkWord("order id", orderID); err != nil {
		return "", 0, HandedOver{}, err
	}
	if userID == "" || maxEvents < 1 {
		return "", 0, HandedOver{}, fmt.Errorf("user id %q, max events %d: use a user id, and at least 1", userID, maxEvents)
	}
	reply, err := leaveScript.Run(ctx, rdb,
		[]string{keys.Sale, keys.Buyers, keys.Trusted, keys.Orders, keys.Waitlist, keys.Waiting},
		saleID, maxEvents, userID, orderID).Result()
	if err != nil {
		return "", 0, HandedOver{}, err
	}
	parts, err := replyArray(reply, 4)
	if err != nil {
		return "", 0, HandedOver{}, err
	}
	text, err := replyText(parts[0])
	if err != nil {
		return "", 0, HandedOver{}, err
	}
	if ticket, err = replyInteger(parts[1]); err != nil {
		return "", 0, HandedOver{}, err
	}
	switch code = LeaveCode(text); code {
	case leaveNotLoaded:
		return "", 0, HandedOver{}, ErrNotLoaded
	case leaveUntrusted:
		return "", 0, HandedOver{}, ErrUntrusted
	case LeaveLeft, LeaveAbsent, LeaveOrdered:
		handed, err = decodeHandedOver(parts[2], parts[3])
		return code, ticket, handed, err
	default:
		return "", 0, HandedOver{}, unknownCode(text)
	}
}
