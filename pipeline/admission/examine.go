package admission

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/retry"
)

// examineEvery is how old the last examination of a server may get: its settings can be changed while it runs.
const examineEvery = 10 * time.Second

// examine finds out what the server's replies on a connection confirm, unless that is known. Where each reply proves
// that the disk has everything, one write makes that true of what the server loaded when it started, too: it was read,
// but not necessarily from the disk.
func examine(ctx context.Context, on redis.Scripter, marker string) error {
	conn, ok := on.(*connection)
	if !ok || time.Since(conn.examined) < examineEvery {
		return nil
	}
	features, err := redisstore.Examine(ctx, conn)
	if err != nil {
		return err
	}
	conn.byReply, conn.waitsForDisk, conn.examined = pipeline.DurabilityMemory, features.WaitsForDisk(), time.Now()
	if features.Durability() != pipeline.DurabilityFsync {
		return nil
	}
	err = conn.Set(ctx, marker, "1", 0).Err()
	switch {
	case err == nil:
		conn.byReply = pipeline.DurabilityFsync
	case retry.IsTransient(err):
		return err
	default: // Redis is full: it still answers what needs no memory
		conn.examined = time.Time{}
	}
	return nil
}
