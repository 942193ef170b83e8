package lua

import (
	"context"
	_ "embed" // the script is part of the program
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed reap.lua
var reapSource string

var reapScript = redis.NewScript(reapSource)

// ReapResult says what Reap did.
type ReapResult string

// Every result of Reap.
const (
	ReapRemoved ReapResult = "removed" // the consumer is gone
	ReapAlive   ReapResult = "alive"   // its heartbeat is there; nothing changed
	ReapPending ReapResult = "pending" // it has pending entries, to be claimed first; nothing changed
	ReapAbsent  ReapResult = "absent"  // no such consumer, group or stream
)

// Reap removes a consumer from a group, but only one that has neither a heartbeat nor pending entries: those would be
// destroyed with it. After an error, calling again is safe.
func Reap(ctx context.Context, rdb redis.Scripter, stream, heartbeatKey, group, consumer string) (ReapResult, error) {
	reply, err := reapScript.Run(ctx, rdb, []string{stream, heartbeatKey}, group, consumer).Result()
	if err != nil {
		return "", fmt.Errorf("reap: %w", err)
	}
	code, err := replyText(reply)
	if err != nil {
		return "", fmt.Errorf("reap: %w", err)
	}
	switch r := ReapResult(code); r {
	case ReapRemoved, ReapAlive, ReapPending, ReapAbsent:
		return r, nil
	default:
		return "", fmt.Errorf("reap: %w", unknownCode(code))
	}
}
