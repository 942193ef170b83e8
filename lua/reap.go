package lua

import (
	"context"
	_ "embed" // the script is part of the program

	"github.com/redis/go-redis/v9"
)

//go:embed reap.lua
var reapSource string

var reapScript = newScript("reap", reapSource)

// ReapCode is the outcome of Reap.
type ReapCode string

// Every code of Reap.
const (
	ReapRemoved ReapCode = "removed" // the consumer is gone
	ReapAlive   ReapCode = "alive"   // its heartbeat is there; nothing changed
	ReapPending ReapCode = "pending" // it has pending entries, to be claimed first; nothing changed
	ReapAbsent  ReapCode = "absent"  // no such consumer, group or stream
)

// Reap removes a consumer from a group, but only one that has neither a heartbeat nor pending entries: those would be
// destroyed with it. After an error, calling again is safe.
func Reap(
	ctx context.Context, rdb redis.Scripter, stream, heartbeatKey, group, consumer string,
) (code ReapCode, err error) {
	defer named("reap", &err)
	reply, err := reapScript.Run(ctx, rdb, []string{stream, heartbeatKey}, group, consumer).Result()
	if err != nil {
		return "", err
	}
	return replyCode(reply, ReapRemoved, ReapAlive, ReapPending, ReapAbsent)
}
