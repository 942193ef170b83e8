package lua

import (
	"context"
	_ "embed" // the script is part of the program

	"github.com/redis/go-redis/v9"
)

//go:embed take.lua
var takeSource string

var takeScript = newScript("take", movesSource+takeSource)

// takeCode is the outcome of Take.
type takeCode string

// Every code of Take.
const (
	takeTaken     takeCode = "taken"      // so many units are out of the partition
	takeFinished  takeCode = "finished"   // ErrMoveFinished
	takeNotLoaded takeCode = "not-loaded" // ErrNotLoaded
	takeUntrusted takeCode = "untrusted"  // ErrUntrusted
)

// Take takes up to m.Units free units of a sale out of its partition, for a move to another one. It returns how many
// the move has taken, now or in an earlier call: after an error, calling again is safe. Once a move has taken 0, it is
// void and never takes anything. Generation is that of the server that answered: units that a server took in an earlier
// one than the partition's newest may have been forgotten, and don't count before Take is called again.
func Take(ctx context.Context, rdb redis.Scripter, keys SaleKeys, m Move) (units, generation int64, err error) {
	defer named("take", &err)
	if err := m.check(0); err != nil {
		return 0, 0, err
	}
	reply, err := takeScript.Run(ctx, rdb, []string{keys.Sale, keys.Trusted, keys.Generation},
		m.Number, m.Units, m.Done, keys.Fence).Result()
	if err != nil {
		return 0, 0, err
	}
	parts, err := replyArray(reply, 3)
	if err != nil {
		return 0, 0, err
	}
	code, err := replyCode(parts[0], takeTaken, takeFinished, takeNotLoaded, takeUntrusted)
	switch {
	case err != nil:
		return 0, 0, err
	case code == takeFinished:
		return 0, 0, ErrMoveFinished
	case code == takeNotLoaded:
		return 0, 0, ErrNotLoaded
	case code == takeUntrusted:
		return 0, 0, ErrUntrusted
	}
	if units, err = replyInteger(parts[1]); err != nil {
		return 0, 0, err
	}
	if generation, err = replyInteger(parts[2]); err != nil {
		return 0, 0, err
	}
	return units, generation, nil
}
