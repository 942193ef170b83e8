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

var acquireScript = redis.NewScript(acquireSource)

// Keys are where a lock lies: itself and its queue, in one hash slot.
type Keys struct{ Lock, Queue string }

// Caller is who asks for a lock, and how. Owner and Hold are words without spaces; Hold is unique to one entry.
type Caller struct {
	Owner, Hold string
	Channel     string // where to wake it; empty: it does not wait. A word without spaces
	Again       bool   // it may stand in the queue already
	Cluster     bool   // the server is a node of a cluster
}

// name is how the scripts know the caller. Most own what they hold themselves.
func (c *Caller) name() string { return c.Owner + " " + c.Hold }

// Waiting is what a busy lock answers.
type Waiting struct {
	Fence int64         // of the lock that is ours; 0: somebody else has it
	Queue int64         // how many wait, the caller included; 0: it does not wait
	Left  time.Duration // until a lease ends that is in the way, unless it is renewed
}

// Acquire takes a mutex, enters it again, claims it after a hand-over, or joins its queue, which needs a Channel. The TTL
// counts in whole milliseconds. With fair, nobody overtakes who waits.
func Acquire(ctx context.Context, rdb redis.Scripter, keys Keys, who Caller, ttl time.Duration, fair bool) (Waiting, error) {
	if err := who.check(ttl); err != nil {
		return Waiting{}, fmt.Errorf("acquire: %w", err)
	}
	args := []any{who.name(), ttl.Milliseconds(), who.Channel, who.flags(fair)}
	if who.Channel == "" && args[3] == "" {
		args = args[:2] // most calls: fewer words to read
	}
	reply, err := acquireScript.Run(ctx, rdb, []string{keys.Lock, keys.Queue}, args...).Result()
	if err != nil {
		return Waiting{}, fmt.Errorf("acquire: %w", err)
	}
	return waitingReply("acquire", reply)
}

// waitingReply reads a fence, or what is told to one who waits.
func waitingReply(script string, reply any) (Waiting, error) {
	switch r := reply.(type) {
	case int64:
		if r == 0 {
			return Waiting{}, nil
		}
	case []any:
		if len(r) == 2 {
			queue, ok := r[0].(int64)
			left, too := r[1].(int64)
			if ok && too && queue >= 0 && left >= 0 {
				return Waiting{Queue: queue, Left: time.Duration(left) * time.Millisecond}, nil
			}
		}
	case string:
		if fence, err := strconv.ParseInt(r, 10, 64); err == nil && fence > 0 {
			return Waiting{Fence: fence}, nil
		}
	}
	return Waiting{}, fmt.Errorf("%s: unknown reply: %T %.200v", script, reply, reply)
}

func (c Caller) flags(fair bool) string {
	if !fair && !c.Again && !c.Cluster {
		return ""
	}
	flags := ""
	if fair {
		flags += "f"
	}
	if c.Again {
		flags += "a"
	}
	if c.Cluster {
		flags += "c"
	}
	return flags
}

func (c Caller) check(ttl time.Duration) error {
	switch {
	case c.Owner == "" || c.Hold == "" || strings.Contains(c.Owner, " ") || strings.Contains(c.Hold, " ") || strings.Contains(c.Channel, " "):
		return fmt.Errorf("owner %q, hold %q, channel %q: use words", c.Owner, c.Hold, c.Channel)
	case ttl < time.Millisecond:
		return fmt.Errorf("ttl %s: use at least 1ms", ttl)
	default:
		return nil
	}
}
