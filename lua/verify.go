package lua

import (
	"context"
	_ "embed" // the script is part of the program
	"errors"

	"github.com/redis/go-redis/v9"
)

//go:embed verify.lua
var verifySource string

var verifyScript = newScript("verify", verifySource)

// Trust is how far a partition's state is verified under the server process that serves it now.
type Trust string

// VerifyKeys name a partition, and the caller's installation; the keys share a hash slot.
type VerifyKeys struct {
	Trusted      string // names the server process whose state was verified
	Installation string // id of the installation that the partition belongs to
	Generation   string // that of the last verification of this server

	// ID is that of the caller's installation. ReadTrust answers without one, and then never says Foreign.
	ID string
	// Verified is, for Reopen and FinishVerify, the generation that the verification began; for a Reopen that takes over,
	// the one in which the partition was verified last by Postgres' count.
	Verified int64
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

// Verified is what a server says of a partition.
type Verified struct {
	Trust      Trust
	Server     string // "<run_id>:<replid>" of the process and of the history of its data
	Generation int64  // of the last verification of this server; 0: there was none
}

// ReadTrust returns how far a partition is verified, and which server has it. It changes nothing.
func ReadTrust(ctx context.Context, rdb redis.Scripter, keys VerifyKeys) (Verified, error) {
	return verify(ctx, rdb, keys, "look", none)
}

// BeginVerify takes a partition for the verification that token names, from any other one: admission is closed there
// until it finishes. A partition that belongs to no installation belongs to the caller's from then on.
func BeginVerify(ctx context.Context, rdb redis.Scripter, keys VerifyKeys, token string) (Trust, error) {
	v, err := verify(ctx, rdb, keys, "begin", token)
	return v.Trust, err
}

// Reopen opens a partition for lost accepts only, if the verification still has it. One that did not begin here takes
// over from one that got so far, unless the server was verified in an earlier generation. Repeating it is safe.
func Reopen(ctx context.Context, rdb redis.Scripter, keys VerifyKeys, token string) (Trust, error) {
	v, err := verify(ctx, rdb, keys, "reopen", token)
	return v.Trust, err
}

// FinishVerify opens a partition for all requests, if the verification still has it. Repeating it is safe.
func FinishVerify(ctx context.Context, rdb redis.Scripter, keys VerifyKeys, token string) (Trust, error) {
	v, err := verify(ctx, rdb, keys, "finish", token)
	return v.Trust, err
}

func verify(ctx context.Context, rdb redis.Scripter, keys VerifyKeys, step, token string) (v Verified, err error) {
	defer named("verify", &err)
	if step != "look" {
		if err := errors.Join(checkWord("token", token), checkWord("installation", keys.ID)); err != nil {
			return Verified{}, err
		}
	}
	names := []string{keys.Trusted, keys.Installation, keys.Generation}
	reply, err := verifyScript.Run(ctx, rdb, names, step, token, orNone(&keys.ID), keys.Verified).Result()
	if err != nil {
		return Verified{}, err
	}
	items, err := replyArray(reply, 3)
	if err != nil {
		return Verified{}, err
	}
	if v.Trust, err = replyCode(
		items[0], Trusted, Reopening, Verifying, Untrusted, Overtaken, Foreign); err != nil {
		return Verified{}, err
	}
	if v.Server, err = replyText(items[1]); err != nil {
		return Verified{}, err
	}
	v.Generation, err = replyInteger(items[2])
	return v, err
}
