package lock

import (
	"context"
	_ "embed" // the script is part of the program
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed unshare.lua
var unshareSource string

var unshareScript = newScript("unshare", unshareSource)

// The codes of unshare.lua.
const (
	unshareFreed   = "freed"
	unshareNotHeld = "not-held"
)

// ReleaseShare ends a share and, when who has a Channel, its place in the queue. held reports whether it was still
// held.
func ReleaseShare(
	ctx context.Context, rdb redis.Scripter, keys ShareKeys, who Caller, share Share,
) (held bool, err error) {
	defer named("unshare", &err)
	if err := errors.Join(who.check(time.Second), share.check()); err != nil {
		return false, err
	}
	reply, err := unshareScript.Run(ctx, rdb, []string{keys.Shares, keys.Queue},
		string(share.Kind), share.Amount, share.Limit, who.Hold, who.Channel, who.flags(false)).Result()
	if err != nil {
		return false, err
	}
	switch reply {
	case unshareFreed:
		return true, nil
	case unshareNotHeld:
		return false, nil
	default:
		return false, unknownReply(reply)
	}
}
