package lua

import (
	"context"
	_ "embed" // the script is part of the program
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed release.lua
var releaseSource string

var releaseScript = newScript("release", handOverSource+releaseSource)

// MaxReleaseBatch bounds one Release. The server answers no other client meanwhile: 1000 orders take it one to two
// milliseconds.
const MaxReleaseBatch = 1000

// ErrNotLoaded says that Redis does not have the sale, so nothing was changed.
var ErrNotLoaded = errors.New("the sale is not loaded")

// ErrUntrusted says that the state of the server process is not verified, so nothing was changed.
var ErrUntrusted = errors.New("the state of Redis is not verified")

// ReleaseItem names an order and its buyer: one that has ended, whose units go back, or one that is no longer wanted.
type ReleaseItem struct {
	UserID    string
	OrderID   string
	Withdrawn bool // the units do not go back into stock, the slot does
}

// The codes of release.lua.
const (
	releaseReleased  = "released"
	releaseNotHeld   = "not-held"
	releaseNotLoaded = "not-loaded"
	releaseUntrusted = "untrusted"
)

// Release gives back the stock and the slots of 1 to MaxReleaseBatch ended orders of a sale, and hands units that are
// free then over to buyers who wait, while the stream has fewer than maxEvents entries (at least 1). released[i]
// reports whether items[i] was given back by this very call: false means that the buyer's slot no longer names that
// order, so it was given back before. The idempotency keys of the orders go on to answer with them, those of the latest
// 8 orders of each buyer. After an error, calling again is safe; ErrNotLoaded asks for the sale to be
// loaded first, ErrUntrusted for the server to be verified.
func Release(
	ctx context.Context, rdb redis.Scripter, keys SaleKeys, saleID string, maxEvents int64, items []ReleaseItem,
) (released []bool, handed HandedOver, err error) {
	if err := checkBatch(len(items), MaxReleaseBatch); err != nil {
		return nil, HandedOver{}, fmt.Errorf("release: %w", err)
	}
	return release(ctx, rdb, keys, saleID, maxEvents, items)
}

// HandOver hands units that are free over to buyers who wait, at most MaxHandOver orders: where it has so many, there
// may be more. Errors are those of Release.
func HandOver(
	ctx context.Context, rdb redis.Scripter, keys SaleKeys, saleID string, maxEvents int64,
) (HandedOver, error) {
	_, handed, err := release(ctx, rdb, keys, saleID, maxEvents, nil)
	return handed, err
}

func release(
	ctx context.Context, rdb redis.Scripter, keys SaleKeys, saleID string, maxEvents int64, items []ReleaseItem,
) (released []bool, handed HandedOver, err error) {
	defer named("release", &err)
	args, err := releaseArgs(saleID, maxEvents, items)
	if err != nil {
		return nil, HandedOver{}, err
	}
	reply, err := releaseScript.Run(ctx, rdb, append(keys.withOrders(), keys.Ended), args...).Result()
	if err != nil {
		return nil, HandedOver{}, err
	}
	return decodeRelease(reply, len(items))
}

func releaseArgs(saleID string, maxEvents int64, items []ReleaseItem) ([]any, error) {
	if err := checkMaxEvents(maxEvents); err != nil {
		return nil, err
	}
	args := make([]any, 0, 2+3*len(items))
	args = append(args, saleID, maxEvents)
	for i := range items {
		if items[i].UserID == "" {
			return nil, fmt.Errorf("item %d: user id is empty", i)
		}
		if err := checkWord("order id", items[i].OrderID); err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		withdrawn := 0
		if items[i].Withdrawn {
			withdrawn = 1
		}
		args = append(args, &items[i].UserID, &items[i].OrderID, withdrawn)
	}
	return args, nil
}

func decodeRelease(reply any, orders int) ([]bool, HandedOver, error) {
	switch reply {
	case releaseNotLoaded:
		return nil, HandedOver{}, ErrNotLoaded
	case releaseUntrusted:
		return nil, HandedOver{}, ErrUntrusted
	}
	parts, err := replyArray(reply, 3)
	if err != nil {
		return nil, HandedOver{}, err
	}
	codes, err := replyArray(parts[0], orders)
	if err != nil {
		return nil, HandedOver{}, err
	}
	released := make([]bool, orders)
	for i, code := range codes {
		switch code {
		case releaseReleased:
			released[i] = true
		case releaseNotHeld:
		default:
			return nil, HandedOver{}, unknownCode(code)
		}
	}
	handed, err := decodeHandedOver(parts[1], parts[2])
	return released, handed, err
}
