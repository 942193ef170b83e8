package lua

import (
	"context"
	_ "embed" // the script is part of the program
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed passed.lua
var passedSource string

var passedScript = redis.NewScript(passedSource)

// Passage says whether the events of some instant are settled.
type Passage string

// Every answer of Passed.
const (
	PassagePassed    Passage = "passed"    // no event of that instant, or an older one, is in the stream
	PassageWaiting   Passage = "waiting"   // there is one
	PassageUntrusted Passage = "untrusted" // the server's state is not verified: nothing is proved
)

// Passed tells whether everything that a stream held at an instant, in milliseconds of Redis' clock, is settled. 0 asks
// about this very moment. It returns the instant to ask about again. It changes nothing.
func Passed(ctx context.Context, rdb redis.Scripter, stream, trustedKey string, atMS int64) (Passage, int64, error) {
	reply, err := passedScript.Run(ctx, rdb, []string{stream, trustedKey}, atMS).Result()
	if err != nil {
		return "", 0, fmt.Errorf("passed: %w", err)
	}
	items, err := replyArray(reply, 2)
	if err != nil {
		return "", 0, fmt.Errorf("passed: %w", err)
	}
	code, err := replyText(items[0])
	if err != nil {
		return "", 0, fmt.Errorf("passed: %w", err)
	}
	at, err := replyInteger(items[1])
	if err != nil {
		return "", 0, fmt.Errorf("passed: %w", err)
	}
	switch p := Passage(code); p {
	case PassagePassed, PassageWaiting, PassageUntrusted:
		return p, at, nil
	default:
		return "", 0, fmt.Errorf("passed: %w", unknownCode(code))
	}
}
