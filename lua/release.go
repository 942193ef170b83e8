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

var releaseScript = redis.NewScript(releaseSource)

// MaxReleaseBatch bounds one Release. The server answers nobody else meanwhile: 1000 orders take it one to two
// milliseconds.
const MaxReleaseBatch = 1000

// ErrNotLoaded says that Redis does not hold the sale, so that nothing could be given back to it, and nothing was.
var ErrNotLoaded = errors.New("the sale is not loaded")

// ReleaseKeys are the keys of one sale on one partition; they share a hash slot.
type ReleaseKeys struct {
	Sale   string // hash of the sale
	Buyers string // hash from user id to slot
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
)

// Release gives back the stock and the slots of 1 to MaxReleaseBatch ended orders of a sale. The result tells for each
// whether it was given back by this very call: false means that the buyer's slot no longer names that order, so it was
// given back before. After an error, calling again is safe; ErrNotLoaded asks for the sale to be loaded first.
func Release(ctx context.Context, rdb redis.Scripter, keys ReleaseKeys, items []ReleaseItem) ([]bool, error) {
	args, err := releaseArgs(items)
	if err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	reply, err := releaseScript.Run(ctx, rdb, []string{keys.Sale, keys.Buyers}, args...).Result()
	if err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	released, err := decodeRelease(reply, len(items))
	if err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	return released, nil
}

func releaseArgs(items []ReleaseItem) ([]any, error) {
	if err := checkBatch(len(items), MaxReleaseBatch); err != nil {
		return nil, err
	}
	args := make([]any, 0, 2*len(items))
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

func decodeRelease(reply any, orders int) ([]bool, error) {
	if reply == any(releaseNotLoaded) {
		return nil, ErrNotLoaded
	}
	codes, err := replyArray(reply, orders)
	if err != nil {
		return nil, err
	}
	released := make([]bool, orders)
	for i, code := range codes {
		switch code {
		case releaseReleased:
			released[i] = true
		case releaseNotHeld:
		default:
			return nil, unknownCode(code)
		}
	}
	return released, nil
}
