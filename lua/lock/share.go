package lock

import (
	"context"
	_ "embed" // the script is part of the program
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed share.lua
var shareSource string

var shareScript = newScript("share", shareSource)

// AcquireShare takes shares, claims them after a hand-over, or joins the queue, which needs a Channel. Its Fence is 1
// for all but writers: the shares are held, but there is nothing to fence with. The owner of the caller does not count.
func AcquireShare(
	ctx context.Context, rdb redis.Scripter, keys ShareKeys, who Caller, share Share, ttl time.Duration,
) (got AcquireReply, err error) {
	defer named("share", &err)
	if err := errors.Join(who.check(ttl), share.check()); err != nil {
		return AcquireReply{}, err
	}
	reply, err := shareScript.Run(ctx, rdb, []string{keys.Shares, keys.Queue, keys.Fence},
		string(share.Kind), share.Amount, share.Limit, who.Hold, ttl.Milliseconds(), who.Channel, who.flags(false)).Result()
	if err != nil {
		return AcquireReply{}, err
	}
	if reply == noFence {
		return AcquireReply{Fence: 1}, nil
	}
	return waitingReply(reply)
}

var noFence any = fmt.Sprintf("%016d", 0)
