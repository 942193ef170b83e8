package pipeline

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
)

// Durability says what had been confirmed about an accept before the buyer was told. Each level includes those before it.
type Durability string

// The levels, from weak to strong.
const (
	DurabilityMemory  Durability = "memory"  // in the memory of one Redis process: nothing but its reply confirms it
	DurabilityFsync   Durability = "fsync"   // on the disk of that process as well
	DurabilityReplica Durability = "replica" // on that disk, and received by at least one replica
)

const (
	// confirmWait is how long a batch waits for the disk, and then for a replica. Either needs milliseconds when it is well,
	// and the gate's next batch waits too.
	confirmWait = 250 * time.Millisecond
	// confirmLimit bounds a confirmation as a whole: both waits, and Redis' habit of looking at waits that are over only ten
	// times a second. An attempt (750 ms) and this fit into the buyer's time limit (2 s), so it never costs him his answer.
	confirmLimit = 700 * time.Millisecond
	// confirmPause is how long nobody waits after a confirmation that did not come: accepts go on at full speed while a
	// replica is away, and it is noticed this late that it is back.
	confirmPause = time.Second
)

// confirmer runs admit calls and finds out how durable what they accepted is. It claims nothing that was not confirmed on
// the very connection that accepted, by a server process that was examined on that connection.
type confirmer struct {
	want    Durability
	rdb     redis.UniversalClient
	links   *links
	metrics *Metrics
	log     *slog.Logger

	pausedUntil atomic.Int64 // Unix time in ns

	mu   sync.Mutex // protects told
	told Durability // the latest level; a change is logged once
}

func newConfirmer(rdb redis.UniversalClient, want Durability, m *Metrics, log *slog.Logger) *confirmer {
	return &confirmer{want: want, rdb: rdb, links: newLinks(rdb), metrics: m, log: log, told: want}
}

// admit makes one call of the script and says at which level its accepts and replays stand. The marker is a key in the
// call's partition that is ours to write. again says that the call was made before with the same order ids: what it tells
// of may then have been written on another connection. An error is the call's own; a confirmation that fails is a lower
// level.
func (c *confirmer) admit(
	ctx context.Context, marker string, again bool, call func(redis.Scripter) (lua.AdmitReply, error),
) (lua.AdmitReply, Durability, error) {
	if c.want == DurabilityMemory {
		reply, err := call(c.rdb)
		c.note(reply, DurabilityMemory)
		return reply, DurabilityMemory, err
	}
	l, err := c.links.take(ctx, marker)
	if err != nil {
		return lua.AdmitReply{}, "", err
	}
	reply, err := call(l)
	if err != nil {
		c.links.give(l, err)
		return lua.AdmitReply{}, "", err
	}
	level, err := c.confirm(l, marker, again, reply)
	c.links.give(l, err)
	c.note(reply, level)
	return reply, level, nil
}

// confirm finds out how durable the accepts and replays of a reply are. The error is one of the connection.
func (c *confirmer) confirm(l *link, marker string, again bool, reply lua.AdmitReply) (Durability, error) {
	byReply := l.byReply
	needsDisk, needsReplica := byReply != DurabilityFsync, c.want == DurabilityReplica
	accepted, replayed := tally(reply)
	switch {
	case accepted+replayed == 0, !needsDisk && !needsReplica:
		return byReply, nil
	case needsDisk && !l.features.WaitsForDisk():
		return byReply, nil
	case time.Now().UnixNano() < c.pausedUntil.Load():
		return byReply, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), confirmLimit)
	defer cancel()
	pipe := l.Pipeline()
	mark := redis.NewStatusCmd(ctx, "set", marker, "1")
	disk := redis.NewIntSliceCmd(ctx, "waitaof", 1, 0, confirmWait.Milliseconds())
	replicas := redis.NewIntCmd(ctx, "wait", 1, confirmWait.Milliseconds())
	if again || replayed > 0 {
		// A wait covers what its own connection wrote. This write comes after the order in the one sequence that both the
		// file and the replicas get, so whoever has it has the order.
		_ = pipe.Process(ctx, mark) // it is only queued
	}
	if needsDisk {
		_ = pipe.Process(ctx, disk)
	}
	if needsReplica {
		_ = pipe.Process(ctx, replicas)
	}
	_, err := pipe.Exec(ctx)
	level := byReply
	if mark.Err() == nil {
		if onDisk := disk.Val(); len(onDisk) > 0 && onDisk[0] >= 1 {
			level = DurabilityFsync
		}
		if level == DurabilityFsync && replicas.Val() >= 1 {
			level = DurabilityReplica
		}
	}
	if level != c.want {
		c.pausedUntil.Store(time.Now().Add(confirmPause).UnixNano())
	}
	return level, err
}

// tally counts the outcomes whose receipts tell a level.
func tally(reply lua.AdmitReply) (accepted, replayed int) {
	for _, o := range reply.Outcomes {
		if o.Code == lua.AdmitAccepted {
			accepted++
		}
		if o.Code == lua.AdmitReplayed {
			replayed++
		}
	}
	return accepted, replayed
}

// note counts the receipts and logs a change of the level once.
func (c *confirmer) note(reply lua.AdmitReply, level Durability) {
	accepted, replayed := tally(reply)
	if accepted+replayed == 0 {
		return
	}
	c.metrics.admissionLevels.WithLabelValues(string(level)).Add(float64(accepted + replayed))
	c.mu.Lock()
	before := c.told
	c.told = level
	c.mu.Unlock()
	switch {
	case level == before:
	case level == c.want:
		c.log.Info("accepts are as durable as DURABILITY asks for again", "durability", level)
	default:
		c.log.Warn("accepts are less durable than DURABILITY asks for, and receipts say so; look at Redis' disk, settings and replicas",
			"durability", level, "wanted", c.want)
	}
}
