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

var releaseScript = redis.NewScript(handOverSource + releaseSource)

// MaxReleaseBatch bounds one Release. The server answers nobody else meanwhile: 1000 orders take it one to two
// milliseconds.
const MaxReleaseBatch = 1000

// ErrNotLoaded says that Redis does not hold the sale, so that nothing could be given back to it, and nothing was.
var ErrNotLoaded = errors.New("the sale is not loaded")

// ErrUntrusted says that nobody has verified what the server process holds, so that nothing was given back.
var ErrUntrusted = errors.New("the state of Redis is not verified")

// ReleaseKeys are the keys of one sale on one partition; they share a hash slot.
type ReleaseKeys struct {
	Sale    string // hash of the sale
	Buyers  string // hash from user id to slot
	Trusted string // names the server process whose state was verified

	Orders   string // the partition's stream of order events
	Waitlist string // sorted set of those who wait
	Waiting  string // hash from user id to what the person waits for
}

// ReleaseItem is an order that has ended and holds its units no longer.
type ReleaseItem struct {
	UserID  string
	OrderID string
}

// The codes of release.lua.
const (
	releaseReleased  = "released"
	releaseNotHeld   = "not-held"
	releaseNotLoaded = "not-loaded"
	releaseUntrusted = "untrusted"
)

// Release gives back the stock and the slots of 1 to MaxReleaseBatch ended orders of a sale, and hands what is free then over
// to those who wait for it, while the stream holds fewer than maxEvents (at least 1). The result tells for each item whether
// it was given back by this very call: false means that the buyer's slot no longer names that order, so it was given back
// before. After an error, calling again is safe; ErrNotLoaded asks for the sale to be loaded first, ErrUntrusted for the
// server to be verified.
func Release(ctx context.Context, rdb redis.Scripter, keys ReleaseKeys, saleID string, maxEvents int64, items []ReleaseItem) ([]bool, HandedOver, error) {
	if err := checkBatch(len(items), MaxReleaseBatch); err != nil {
		return nil, HandedOver{}, fmt.Errorf("release: %w", err)
	}
	return release(ctx, rdb, keys, saleID, maxEvents, items)
}

// HandOver hands units that are free over to those who wait for them, at most MaxHandOver orders: where it has so many, there
// may be more. Errors are those of Release.
func HandOver(ctx context.Context, rdb redis.Scripter, keys ReleaseKeys, saleID string, maxEvents int64) (HandedOver, error) {
	_, handed, err := release(ctx, rdb, keys, saleID, maxEvents, nil)
	return handed, err
}

func release(ctx context.Context, rdb redis.Scripter, keys ReleaseKeys, saleID string, maxEvents int64, items []ReleaseItem) ([]bool, HandedOver, error) {
	args, err := releaseArgs(saleID, maxEvents, items)
	if err != nil {
		return nil, HandedOver{}, fmt.Errorf("release: %w", err)
	}
	reply, err := releaseScript.Run(ctx, rdb,
		[]string{keys.Sale, keys.Buyers, keys.Trusted, keys.Orders, keys.Waitlist, keys.Waiting}, args...).Result()
	if err != nil {
		return nil, HandedOver{}, fmt.Errorf("release: %w", err)
	}
	released, handed, err := decodeRelease(reply, len(items))
	if err != nil {
		return nil, HandedOver{}, fmt.Errorf("release: %w", err)
	}
	return released, handed, nil
}

func releaseArgs(saleID string, maxEvents int64, items []ReleaseItem) ([]any, error) {
	if maxEvents < 1 {
		return nil, fmt.Errorf("max events %d: use at least 1", maxEvents)
	}
	args := make([]any, 0, 2+2*len(items))
	args = append(args, saleID, maxEvents)
	for i := range items {
		if items[i].UserID == "" {
			return nil, fmt.Errorf("item %d: user id is empty", i)
		}
		if err := checkWord("order id", items[i].OrderID); err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		args = append(args, &items[i].UserID, &items[i].OrderID)
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
