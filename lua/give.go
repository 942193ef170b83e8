package lua

import (
	"context"
	_ "embed" // the script is part of the program
	"errors"

	"github.com/redis/go-redis/v9"
)

//go:embed give.lua
var giveSource string

var giveScript = newScript("give", handOverSource+movesSource+giveSource)

// giveCode is the outcome of Give.
type giveCode string

// Every code of Give.
const (
	giveGiven     giveCode = "given"      // the units are in the partition
	giveFinished  giveCode = "finished"   // ErrMoveFinished
	giveNotLoaded giveCode = "not-loaded" // ErrNotLoaded
	giveUntrusted giveCode = "untrusted"  // ErrUntrusted
)

// Give adds the units that a move has taken, by Take on another partition and by Postgres' record of it, to a partition
// of the sale. Buyers who wait there get them first, as by Release. After an error, calling again is safe. Generation
// is that of the server that answered: units that a server was given in an earlier one than the partition's newest may
// have been forgotten, and don't count before Give is called again.
func Give(
	ctx context.Context, rdb redis.Scripter, keys SaleKeys, saleID string, maxEvents int64, m Move,
) (generation int64, handed HandedOver, err error) {
	defer named("give", &err)
	if err := errors.Join(m.check(1), checkMaxEvents(maxEvents)); err != nil {
		return 0, HandedOver{}, err
	}
	reply, err := giveScript.Run(ctx, rdb, append(keys.withOrders(), keys.Generation),
		m.Number, m.Units, m.Done, keys.Fence, saleID, maxEvents).Result()
	if err != nil {
		return 0, HandedOver{}, err
	}
	parts, err := replyArray(reply, 4)
	if err != nil {
		return 0, HandedOver{}, err
	}
	code, err := replyCode(parts[0], giveGiven, giveFinished, giveNotLoaded, giveUntrusted)
	switch {
	case err != nil:
		return 0, HandedOver{}, err
	case code == giveFinished:
		return 0, HandedOver{}, ErrMoveFinished
	case code == giveNotLoaded:
		return 0, HandedOver{}, ErrNotLoaded
	case code == giveUntrusted:
		return 0, HandedOver{}, ErrUntrusted
	}
	if generation, err = replyInteger(parts[1]); err != nil {
		return 0, HandedOver{}, err
	}
	handed, err = decodeHandedOver(parts[2], parts[3])
	return generation, handed, err
}
