package lua

import (
	"context"
	_ "embed" // the script is part of the program
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed adjust.lua
var adjustSource string

var adjustScript = redis.NewScript(handOverSource + adjustSource)

// AdjustResult says what Adjust did.
type AdjustResult string

// Every result of Adjust.
const (
	AdjustAdjusted   AdjustResult = "adjusted"    // the sale follows the new definition
	AdjustCurrent    AdjustResult = "current"     // Redis holds this version or a newer one; nothing changed
	AdjustAbsent     AdjustResult = "absent"      // Redis does not hold the sale; nothing changed
	AdjustBelowTaken AdjustResult = "below-taken" // orders have taken more than the new total; nothing changed
)

// Adjust brings a sale in Redis to a newer definition: total, window, limits and state are replaced, and the stock moves by
// the difference of the totals. What is free then is handed over to those who wait, as by Release. Definitions may arrive
// late or twice; the version decides. After an error, calling again is safe: the result may then be AdjustCurrent for what
// the first call adjusted.
func Adjust(
	ctx context.Context, rdb redis.Scripter, keys ReleaseKeys, saleID string, maxEvents int64, f SaleFields,
) (AdjustResult, HandedOver, error) {
	result, handed, err := adjust(ctx, rdb, keys, saleID, maxEvents, f)
	if err != nil {
		return "", HandedOver{}, fmt.Errorf("adjust: %w", err)
	}
	return result, handed, nil
}

func adjust(
	ctx context.Context, rdb redis.Scripter, keys ReleaseKeys, saleID string, maxEvents int64, f SaleFields,
) (AdjustResult, HandedOver, error) {
	if err := f.check(); err != nil {
		return "", HandedOver{}, err
	}
	if maxEvents < 1 {
		return "", HandedOver{}, fmt.Errorf("max events %d: use at least 1", maxEvents)
	}
	reply, err := adjustScript.Run(ctx, rdb,
		[]string{keys.Sale, keys.Buyers, keys.Trusted, keys.Orders, keys.Waitlist, keys.Waiting},
		f.Total, f.OpensMS, f.ClosesMS, f.MaxQuantity, f.State, f.Version, f.Waitlist, saleID, maxEvents).Result()
	if err != nil {
		return "", HandedOver{}, err
	}
	parts, err := replyArray(reply, 3)
	if err != nil {
		return "", HandedOver{}, err
	}
	code, err := replyText(parts[0])
	if err != nil {
		return "", HandedOver{}, err
	}
	switch r := AdjustResult(code); r {
	case AdjustAdjusted, AdjustCurrent, AdjustAbsent, AdjustBelowTaken:
		handed, err := decodeHandedOver(parts[1], parts[2])
		return r, handed, err
	default:
		return "", HandedOver{}, unknownCode(code)
	}
}
