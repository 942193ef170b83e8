package lua

import (
	"context"
	_ "embed" // the script is part of the program
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed adjust.lua
var adjustSource string

var adjustScript = redis.NewScript(adjustSource)

// AdjustResult says what Adjust did.
type AdjustResult string

// Every result of Adjust.
const (
	AdjustAdjusted   AdjustResult = "adjusted"    // the sale follows the new definition
	AdjustCurrent    AdjustResult = "current"     // Redis holds this version or a newer one; nothing changed
	AdjustAbsent     AdjustResult = "absent"      // Redis does not hold the sale; nothing changed
	AdjustBelowTaken AdjustResult = "below-taken" // orders have taken more than the new total; nothing changed
)

// Adjust brings a sale in Redis to a newer definition: total, window, limit and state are replaced, and the stock moves by
// the difference of the totals. Definitions may arrive late or twice; the version decides. After an error, calling again
// is safe: the result may then be AdjustCurrent for what the first call adjusted.
func Adjust(ctx context.Context, rdb redis.Scripter, saleKey string, f SaleFields) (AdjustResult, error) {
	if err := f.check(); err != nil {
		return "", fmt.Errorf("adjust: %w", err)
	}
	reply, err := adjustScript.Run(ctx, rdb, []string{saleKey},
		f.Total, f.OpensMS, f.ClosesMS, f.MaxQuantity, f.State, f.Version).Result()
	if err != nil {
		return "", fmt.Errorf("adjust: %w", err)
	}
	code, err := replyText(reply)
	if err != nil {
		return "", fmt.Errorf("adjust: %w", err)
	}
	switch r := AdjustResult(code); r {
	case AdjustAdjusted, AdjustCurrent, AdjustAbsent, AdjustBelowTaken:
		return r, nil
	default:
		return "", fmt.Errorf("adjust: %w", unknownCode(code))
	}
}
