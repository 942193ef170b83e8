package lua

import (
	"context"
	_ "embed" // the script is part of the program
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed leave.lua
var leaveSource string

var leaveScript = newScript("leave", handOverSource+leaveSource)

// LeaveCode is the outcome of a request to wait no longer.
type LeaveCode string

// Every code of Leave that is not an error.
const (
	LeaveLeft    LeaveCode = "left"    // waits no longer
	LeaveAbsent  LeaveCode = "absent"  // does not wait for this order, and has no slot for it
	LeaveOrdered LeaveCode = "ordered" // the order was made before; nothing changed

	leaveNotLoaded LeaveCode = "not-loaded"
	leaveUntrusted LeaveCode = "untrusted"
)

// Leave takes a buyer off the waitlist, if the buyer waits for this order, and hands over units that other buyers may
// have now, as Release does. The ticket is one that the call took, 0 with LeaveOrdered: a server that counts fewer is
// older than the leave. After an error, calling again is safe: the code may then be LeaveAbsent for what the first call
// did. Errors besides: ErrNotLoaded, ErrUntrusted.
func Leave(
	ctx context.Context, rdb redis.Scripter, keys SaleKeys, saleID string, maxEvents int64, order ReleaseItem,
) (code LeaveCode, ticket int64, handed HandedOver, err error) {
	defer named("leave", &err)
	if order.UserID == "" {
		err = fmt.Errorf("user id is empty")
	}
	if err := errors.Join(err, checkWord("order id", order.OrderID), checkMaxEvents(maxEvents)); err != nil {
		return "", 0, HandedOver{}, err
	}
	reply, err := leaveScript.Run(ctx, rdb, keys.withOrders(), saleID, maxEvents, order.UserID, order.OrderID).Result()
	if err != nil {
		return "", 0, HandedOver{}, err
	}
	parts, err := replyArray(reply, 4)
	if err != nil {
		return "", 0, HandedOver{}, err
	}
	code, err = replyCode(parts[0], LeaveLeft, LeaveAbsent, LeaveOrdered, leaveNotLoaded, leaveUntrusted)
	switch {
	case err != nil:
		return "", 0, HandedOver{}, err
	case code == leaveNotLoaded:
		return "", 0, HandedOver{}, ErrNotLoaded
	case code == leaveUntrusted:
		return "", 0, HandedOver{}, ErrUntrusted
	}
	if ticket, err = replyInteger(parts[1]); err != nil {
		return "", 0, HandedOver{}, err
	}
	handed, err = decodeHandedOver(parts[2], parts[3])
	return code, ticket, handed, err
}
