package lock

import (
	"context"
	_ "embed" // the script is part of the program
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed release.lua
var releaseSource string

var releaseScript = newScript("release", releaseSource)

// The codes of release.lua.
const (
	releaseFreed   = "freed"
	releaseKept    = "kept"
	releaseNotHeld = "not-held"
)

// Release ends one hold of a mutex and, when who has a Channel, its place in the queue. held reports whether the hold
// had the lock: false means that its lease ended before, or that it only waited.
func Release(ctx context.Context, rdb redis.Scripter, keys Keys, who Caller) (held bool, err error) {
	defer named("release", &err)
	if err := who.check(time.Second); err != nil {
		return false, err
	}
	args := []any{who.name(), who.Channel, who.flags(false)}
	if who.Channel == "" && args[2] == "" {
		args = args[:1]
	}
	reply, err := releaseScript.Run(ctx, rdb, []string{keys.Lock, keys.Queue}, args...).Result()
	if err != nil {
		return false, err
	}
	switch reply {
	case releaseFreed, releaseKept:
		return true, nil
	case releaseNotHeld:
		return false, nil
	default:
		return false, unknownReply(reply)
	}
}
