package lock

import (
	"context"
	_ "embed" // the script is part of the program
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed acquire.lua
var acquireSource string

var acquireScript = newScript("acquire", acquireSource)

// Keys are where a lock lies: itself and its queue, in one hash slot.
type Keys struct{ Lock, Queue string }

// Caller is a request for a lock. Owner and Hold are words without spaces; Hold is unique to one entry.
type Caller struct {
	Owner, Hold string
	Channel     string // where to wake the caller; empty: it does not wait. A word without spaces
	MayBeQueued bool   // it may be in the queue already
	Cluster     bool   // the server is a node of a cluster
}

// name identifies the caller in the scripts.
func (c *Caller) name() string { return c.Owner + " " + c.Hold }

// AcquireReply is the reply of a script that takes a lock, or joins its queue.
type AcquireReply struct {
	Fence int64         // of the lock that the caller holds now; 0: another caller holds it
	Queue int64         // how many wait, the caller included; 0: it does not wait
	Left  time.Duration // until the first lease ends that is in the way, unless it is renewed
}

// Acquire takes a mutex, enters it again, claims it after a hand-over, or joins its queue, which needs a Channel. The
// TTL counts in whole milliseconds. With fair, no caller overtakes one that waits.
func Acquire(
	ctx context.Context, rdb redis.Scripter, keys Keys, who Caller, ttl time.Duration, fair bool,
) (got AcquireReply, err error) {
	defer named("acquire", &err)
	if err := who.check(ttl); err != nil {
		return AcquireReply{}, err
	}
	args := []any{who.name(), ttl.Milliseconds(), who.Channel, who.flags(fair)}
	if who.Channel == "" && args[3] == "" {
		args = args[:2] // most calls: fewer words to read
	}
	reply, err := acquireScript.Run(ctx, rdb, []string{keys.Lock, keys.Queue}, args...).Result()
	if err != nil {
		return AcquireReply{}, err
	}
	return waitingReply(reply)
}

// waitingReply reads a fence, or what the script returns for a caller that waits.
func waitingReply(reply any) (AcquireReply, error) {
	switch r := reply.(type) {
	case int64:
		if r == 0 {
			return AcquireReply{}, nil
		}
	case []any:
		if len(r) == 2 {
			queue, ok := r[0].(int64)
			left, too := r[1].(int64)
			if ok && too && queue >= 0 && left >= 0 {
				return AcquireReply{Queue: queue, Left: time.Duration(left) * time.Millisecond}, nil
			}
		}
	case string:
		if fence, err := strconv.ParseInt(r, 10, 64); err == nil && fence > 0 {
			return AcquireReply{Fence: fence}, nil
		}
	}
	return AcquireReply{}, unknownReply(reply)
}

func (c Caller) flags(fair bool) string {
	flags := ""
	if fair {
		flags += "f"
	}
	if c.MayBeQueued {
		flags += "a"
	}
	if c.Cluster {
		flags += "c"
	}
	return flags
}

func (c Caller) check(ttl time.Duration) error {
	switch {
	case c.Owner == "" || c.Hold == "" || strings.Contains(c.Owner+c.Hold+c.Channel, " "):
		return fmt.Errorf("owner %q, hold %q, channel %q: use words", c.Owner, c.Hold, c.Channel)
	case ttl < time.Millisecond:
		return fmt.Errorf("ttl %s: use at least 1ms", ttl)
	default:
		return nil
	}
}
