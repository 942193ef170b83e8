package lua

import (
	"context"
	_ "embed" // the script is part of the program
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed verify.lua
var verifySource string

var verifyScript = redis.NewScript(verifySource)

// Trust says how far a partition's state is verified under the server process that holds it now.
type Trust string

// VerifyKeys say which partition is meant, and for whom; both keys share a hash slot.
type VerifyKeys struct {
	Trusted      string // names the server process whose state was verified
	Installation string // holds the id of the installation that the partition belongs to

	// ID is that of the caller's installation. Look answers without one, and then never says Foreign.
	ID string
}

// Every answer of the calls below.
const (
	Trusted   Trust = "trusted"   // verified: admission is open
	Reopening Trust = "reopening" // verified, and open for lost accepts only (AdmitAgain)
	Verifying Trust = "verifying" // this verification has begun; nobody is admitted
	Untrusted Trust = "untrusted" // not verified; somebody may be at it
	Overtaken Trust = "overtaken" // another verification has the partition, or another process has the keys
	Foreign   Trust = "foreign"   // the partition belongs to another installation; nothing changed
)

// Look tells how far a partition is verified, and which server holds it: "<run_id>:<replid>" of the process and of the history
// of what it holds. It changes nothing.
func Look(ctx context.Context, rdb redis.Scripter, keys VerifyKeys) (trust Trust, server string, err error) {
	return verify(ctx, rdb, keys, "look", none)
}

// BeginVerify takes a partition for the verification that token names, from whoever had it: from now on nobody is admitted
// there, until it finishes. A partition that belongs to nobody belongs to the caller's installation from then on.
func BeginVerify(ctx context.Context, rdb redis.Scripter, keys VerifyKeys, token string) (Trust, error) {
	trust, _, err := verify(ctx, rdb, keys, "begin", token)
	return trust, err
}

// Reopen opens a partition for lost accepts only, if the verification still has it. Repeating it is safe.
func Reopen(ctx context.Context, rdb redis.Scripter, keys VerifyKeys, token string) (Trust, error) {
	trust, _, err := verify(ctx, rdb, keys, "reopen", token)
	return trust, err
}

// FinishVerify opens a partition for everybody, if the verification still has it. Repeating it is safe.
func FinishVerify(ctx context.Context, rdb redis.Scripter, keys VerifyKeys, token string) (Trust, error) {
	trust, _, err := verify(ctx, rdb, keys, "finish", token)
	return trust, err
}

func verify(ctx context.Context, rdb redis.Scripter, keys VerifyKeys, step, token string) (trust Trust, server string, err error) {
	if step != "look" {
		if err := errors.Join(checkWord("token", token), checkWord("installation", keys.ID)); err != nil {
			return "", "", fmt.Errorf("verify: %w", err)
		}
	}
	reply, err := verifyScript.Run(ctx, rdb, []string{keys.Trusted, keys.Installation}, step, token, orNone(&keys.ID)).Result()
	if err != nil {
		return "", "", fmt.Errorf("verify: %w", err)
	}
	items, err := replyArray(reply, 2)
	if err != nil {
		return "", "", fmt.Errorf("verify: %w", err)
	}
	texts, err := replyTexts(any(items))
	if err != nil {
		return "", "", fmt.Errorf("verify: %w", err)
	}
	switch trust := Trust(texts[0]); trust {
	case Trusted, Reopening, Verifying, Untrusted, Overtaken, Foreign:
		return trust, texts[1], nil
	default:
		return "", "", fmt.Errorf("verify: %w", unknownCode(texts[0]))
	}
}
