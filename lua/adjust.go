package lua

import (
	"context"
	_ "embed" // the script is part of the program
	"errors"

	"github.com/redis/go-redis/v9"
)

//go:embed adjust.lua
var adjustSource string

var adjustScript = newScript("adjust", handOverSource+adjustSource)

// AdjustCode is the outcome of Adjust.
type AdjustCode string

// Every code of Adjust.
const (
	AdjustAdjusted   AdjustCode = "adjusted"    // the sale follows the new definition
	AdjustCurrent    AdjustCode = "current"     // Redis has this version or a newer one; nothing changed
	AdjustAbsent     AdjustCode = "absent"      // Redis does not have the sale; nothing changed
	AdjustBelowTaken AdjustCode = "below-taken" // orders have taken more than the new total; nothing changed
)

// adjustUntrusted is the code for which Adjust returns ErrUntrusted.
const adjustUntrusted AdjustCode = "untrusted"

// Adjust brings a sale in Redis to a newer definition: total, window, limits and state are replaced, and the stock
// moves by the difference of the totals. Units that are free then are handed over to buyers who wait, as by Release.
// Definitions may arrive late or twice; the version decides. After an error, calling again is safe: the code may then
// be AdjustCurrent for what the first call adjusted. ErrUntrusted: units are to be taken out, and the server that says
// how many are free is not verified.
func Adjust(
	ctx context.Context, rdb redis.Scripter, keys SaleKeys, saleID string, maxEvents int64, f SaleFields,
) (code AdjustCode, handed HandedOver, err error) {
	defer named("adjust", &err)
	if err := errors.Join(f.check(), checkMaxEvents(maxEvents)); err != nil {
		return "", HandedOver{}, err
	}
	reply, err := adjustScript.Run(ctx, rdb, keys.withOrders(),
		f.Total, f.OpensMS, f.ClosesMS, f.MaxQuantity, f.State, f.Version, f.Waitlist, saleID, maxEvents).Result()
	if err != nil {
		return "", HandedOver{}, err
	}
	parts, err := replyArray(reply, 3)
	if err != nil {
		return "", HandedOver{}, err
	}
	code, err = replyCode(parts[0], AdjustAdjusted, AdjustCurrent, AdjustAbsent, AdjustBelowTaken, adjustUntrusted)
	switch {
	case err != nil:
		return "", HandedOver{}, err
	case code == adjustUntrusted:
		return "", HandedOver{}, ErrUntrusted
	}
	handed, err = decodeHandedOver(parts[1], parts[2])
	return code, handed, err
}
