package lock

import (
	"context"
	_ "embed" // the script is part of the program
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed run_once.lua
var runOnceSource string

var runOnceScript = newScript("run_once", runOnceSource)

// The codes of run_once.lua.
const (
	runOnceRun  = "run"
	runOnceBusy = "busy"
)

// RunOnce claims the current tick of a job, under a token that must be unique to the call, and reports whether it did.
// Both durations count in whole milliseconds; early is how much before its time a run may begin.
func RunOnce(
	ctx context.Context, rdb redis.Scripter, key, token string, tick, early time.Duration,
) (run bool, err error) {
	defer named("run_once", &err)
	switch {
	case token == "":
		return false, fmt.Errorf("the token is empty")
	case tick < time.Millisecond || early < 0 || early >= tick:
		return false, fmt.Errorf("tick %s, early %s: use at least 1ms, and early less than the tick", tick, early)
	}
	reply, err := runOnceScript.Run(ctx, rdb, []string{key}, token, tick.Milliseconds(), early.Milliseconds()).Result()
	if err != nil {
		return false, err
	}
	switch reply {
	case runOnceRun:
		return true, nil
	case runOnceBusy:
		return false, nil
	default:
		return false, unknownReply(reply)
	}
}
