package lua

import (
	"context"
	_ "embed" // the script is part of the program

	"github.com/redis/go-redis/v9"
)

//go:embed passed.lua
var passedSource string

var passedScript = newScript("passed", passedSource)

// passedCode is the outcome of Passed.
type passedCode string

// Every code of Passed.
const (
	passedAll       passedCode = "passed"    // no event of that instant, or an older one, is in the stream
	passedNotYet    passedCode = "waiting"   // there is one
	passedUntrusted passedCode = "untrusted" // the server's state is not verified: nothing is known
)

// Passed checks whether every event that was in a stream at an instant, in milliseconds of Redis' clock, is settled. 0
// means now. It returns the instant to check again. It changes nothing. Errors: ErrUntrusted: nothing is known.
func Passed(
	ctx context.Context, rdb redis.Scripter, stream, trustedKey string, atMS int64,
) (passed bool, checkedMS int64, err error) {
	defer named("passed", &err)
	reply, err := passedScript.Run(ctx, rdb, []string{stream, trustedKey}, atMS).Result()
	if err != nil {
		return false, 0, err
	}
	items, err := replyArray(reply, 2)
	if err != nil {
		return false, 0, err
	}
	if checkedMS, err = replyInteger(items[1]); err != nil {
		return false, 0, err
	}
	code, err := replyCode(items[0], passedAll, passedNotYet, passedUntrusted)
	if code == passedUntrusted {
		err = ErrUntrusted
	}
	return code == passedAll, checkedMS, err
}
