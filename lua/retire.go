package lua

import (
	"context"
	_ "embed" // the script is part of the program
	"errors"

	"github.com/redis/go-redis/v9"
)

//go:embed retire.lua
var retireSource string

var retireScript = newScript("retire", groupSource+retireSource)

// The codes of retire.lua.
const (
	retireRetired = "retired"
	retireAbsent  = "absent"
	retireNewer   = "newer"
	retireOpen    = "open"
)

// errOpen says that a sale is not over by the server's clock, so nothing was changed.
var errOpen = errors.New("the sale's window has not ended by the clock of Redis")

// Retire removes a sale that is over from Redis, and from its limit group, if it is in one ("": it is not). It reports
// whether nothing of it is there any more: not so where its definition there is newer than the version that was
// retired, because it is to be sold again. After an error, calling again is safe. A sale that is not over by the
// server's clock is an error.
func Retire(
	ctx context.Context, rdb redis.Scripter, keys SaleKeys, version int64, group string,
) (gone bool, err error) {
	defer named("retire", &err)
	names := []string{keys.Sale, keys.Buyers, keys.Waitlist, keys.Waiting, keys.Ended}
	reply, err := retireScript.Run(ctx, rdb, names, version, group).Result()
	if err != nil {
		return false, err
	}
	switch reply {
	case retireRetired, retireAbsent:
		return true, nil
	case retireNewer:
		return false, nil
	case retireOpen:
		return false, errOpen
	default:
		return false, unknownCode(reply)
	}
}
