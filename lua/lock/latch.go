package lock

import (
	"context"
	_ "embed" // the script is part of the program
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed latch.lua
var latchSource string

var latchScript = newScript("latch", latchSource)

// LatchSpec is what all callers of a latch agree on: how many parties it takes, and how long it lives once it is made.
type LatchSpec struct {
	Count int64
	Life  time.Duration
}

// LatchCall is what a caller does with a latch. Each part may be empty.
type LatchCall struct {
	Party string // the party that arrives
	Who   Caller // the waiter; it needs a Channel
	Leave bool   // the waiter leaves
}

// Latch counts a party in, adds the waiter to those that the last party wakes, or removes it. It returns how many
// parties are missing.
func Latch(
	ctx context.Context, rdb redis.Scripter, keys Keys, spec LatchSpec, call LatchCall,
) (missing int64, err error) {
	defer named("latch", &err)
	if spec.Count < 1 || spec.Life < time.Millisecond {
		return 0, fmt.Errorf("count %d, life %s: use at least 1 and 1ms", spec.Count, spec.Life)
	}
	hold := call.Who.Hold
	switch {
	case call.Who.Channel == "":
		hold = ""
	case call.Leave:
		hold = "-" + hold
	}
	reply, err := latchScript.Run(ctx, rdb, []string{keys.Lock, keys.Queue},
		spec.Count, spec.Life.Milliseconds(), call.Party, hold, call.Who.Channel).Result()
	if err != nil {
		return 0, err
	}
	missing, ok := reply.(int64)
	if !ok || missing < 0 || missing > spec.Count {
		return 0, unknownReply(reply)
	}
	return missing, nil
}
