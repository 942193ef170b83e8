package lua

import (
	"context"
	_ "embed" // the script is part of the program
	"errors"

	"github.com/redis/go-redis/v9"
)

//go:embed verify.lua
var verifySource string

var verifyScript = redis.NewScript(verifySource)

// Trust is how far a partition's state is verified under the server process that serves it now.
type Trust string

// VerifyKeys name a partition, and the caller's installation; both keys share a hash slot.
type VerifyKeys struct {
	Trusted      string // names the server process whose state was verified
	Installation string // id of the installation that the partition belongs to

	// ID is that of the caller's installation. Look answers without one, and then never says Foreign.
	ID string
}

// Every code of the calls below.
const (
	Trusted   Trust = "trusted"   // verified: admission is open
	Reopening Trust = "reopening" // verified, and open for lost accepts only (Resubmit)
	Verifying Trust = "verifying" // this verification has begun; admission is closed
	Untrusted Trust = "untrusted" // not verified; a verification may be running
	Overtaken Trust = "overtaken" // another verification has the partition, or another server process has the keys
	Foreign   Trust = "foreign"   // the partition belongs to another installation; nothing changed
)

// ReadTrust returns how far a partition is verified, and which server has it: "<run_id>:<replid>" of the process and of
// the history of its data. It changes nothing.
func ReadTrust(ctx context.Context, rdb redis.Scripter, keys VerifyKeys) (trust Trust, server string, err error) {
	return verify(ctx, rdb, keys, "look", none)
}

// BeginVerify takes a partition for the verification that token names, from any other one: admission is closed there
// until it finishes. A partition that belongs to no installation belongs to the caller's from then on.
func BeginVerify(ctx context.Context, rdb redis.Scripter, keys VerifyKeys, token string) (Trust, error) {
	trust, _, err := verify(ctx, rdb, keys, "begin", token)
	return trust, err
}

// Reopen opens a partition for lost accepts only, if the verification still has it. Repeating it is safe.
func Reopen(ctx context.Context, rdb redis.Scripter, keys VerifyKeys, token string) (Trust, error) {
	trust, _, err := verify(ctx, rdb, keys, "reopen", token)
	return trust, err
}

// FinishVerify opens a partition for all requests, if the verification still has it. Repeating it is safe.
func FinishVerify(ctx context.Context, rdb redis.Scripter, keys VerifyKeys, token string) (Trust, error) {
	trust, _, err := verify(ctx, rdb, keys, "finish", token)
	return trust, err
}

func verify(
	ctx context.Context, rdb redis.Scripter, keys VerifyKeys, step, token string,
) (trust Trust, server string, err error) {
	defer named("verify", &err)
	if step != "look" {
		if err := errors.Join(checkWord("token", token), checkWord("installation", keys.ID)); err != nil {
			return "", "", err
		}
	}
	both := []string{keys.Trusted, keys.Installation}
	reply, err := verifyScript.Run(ctx, rdb, both, step, token, orNone(&keys.ID)).Result()
	if err != nil {
		return "", "", err
	}
	items, err := replyArray(reply, 2)
	if err != nil {
		return "", "", err
	}
	if server, err = replyText(items[1]); err != nil {
		return "", "", err
	}
	trust, err = replyCode(items[0], Trusted, Reopening, Verifying, Untrusted, Overtaken, Foreign)
	return trust, server, err
}
