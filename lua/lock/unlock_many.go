package lock

import (
	"context"
	_ "embed" // the script is part of the program

	"github.com/redis/go-redis/v9"
)

//go:embed unlock_many.lua
var unlockManySource string

var unlockManyScript = newScript("unlock_many", unlockManySource)

// UnlockMany frees those of 1 to MaxBatch locks that are held under the token, and returns how many those were. All
// keys lie in one hash slot.
func UnlockMany(ctx context.Context, rdb redis.Scripter, keys []string, token string) (freed int64, err error) {
	defer named("unlock_many", &err)
	if err := checkBatch(keys, token); err != nil {
		return 0, err
	}
	reply, err := unlockManyScript.Run(ctx, rdb, keys, token).Result()
	if err != nil {
		return 0, err
	}
	freed, ok := reply.(int64)
	if !ok {
		return 0, unknownReply(reply)
	}
	return freed, nil
}
