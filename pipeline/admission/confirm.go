package admission

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
)

const (
	// confirmWait is how long a batch waits for the disk, and then for a replica. Either needs milliseconds when it is
	// healthy, and the gate's next batch waits too.
	confirmWait = 250 * time.Millisecond
	// confirmLimit bounds a confirmation as a whole: both waits, and the tenth of a second that Redis may take to notice
	// that a wait is over. An attempt (750 ms) and this fit into the request's time limit (2 s), so a confirmation never
	// costs the buyer the answer.
	confirmLimit = 700 * time.Millisecond
	// confirmSuspension is how long no batch waits after a confirmation that did not come: accepts go on at full speed
	// while a replica is away (or, with DURABILITY_STRICT, refusals), and its return is noticed this late.
	confirmSuspension = time.Second
)

var started = time.Now()

// uptime is in ns, and above 0. Unlike the time of day it never goes back: what waits for an instant of a clock that
// was an hour ahead would wait for an hour.
func uptime() int64 { return max(1, int64(time.Since(started))) }

// confirmer finds out how durable the accepts of a call are. It reports no level that was not confirmed on the very
// connection that accepted, by a server process that was examined on that connection.
type confirmer struct {
	want    pipeline.Durability
	strict  bool // no accept without want; see strict.go
	metrics *Metrics
	log     *slog.Logger

	suspendedUntil atomic.Int64 // by uptime; see confirmSuspension; not of a strict one
	servers        sync.Map     // address of a server → *standing; of a strict one only

	mu       sync.Mutex          // protects reported
	reported pipeline.Durability // the latest level; a change is logged once
}

func newConfirmer(opts Options, m *Metrics, log *slog.Logger) *confirmer {
	return &confirmer{
		want: opts.Durability, strict: opts.DurabilityStrict, metrics: m, log: log, reported: opts.Durability,
	}
}

// confirm returns the level of the accepts and replays of a call that was made on a connection. again means that the
// call was made before with the same order ids: its accepts may then have been written on another connection. A
// confirmation that fails is a lower level; the error is one of the connection, and not of the call.
func (c *confirmer) confirm(
	on redis.Scripter, marker string, again bool, reply lua.AdmitReply,
) (level pipeline.Durability, err error) {
	level = pipeline.DurabilityMemory
	if conn, ok := on.(*connection); ok {
		level, err = c.waitFor(conn, marker, again, reply)
	}
	c.report(reply, level)
	return level, err
}

// waitFor waits for what a call of the script has accepted, as far as DURABILITY asks for it. The error is one of the
// connection.
func (c *confirmer) waitFor(
	conn *connection, marker string, again bool, reply lua.AdmitReply,
) (pipeline.Durability, error) {
	receipts, replayed := tally(reply)
	disk, replicas := c.asks(conn)
	switch {
	case receipts == 0:
		return conn.byReply, nil
	case !c.strict && (!disk && !replicas || uptime() < c.suspendedUntil.Load()):
		return conn.byReply, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), confirmLimit)
	defer cancel()
	level, err := c.wait(ctx, conn, marker, again || replayed)
	switch {
	case c.strict:
		c.judge(conn, level, err)
	case level != c.want:
		c.suspendedUntil.Store(uptime() + int64(confirmSuspension))
	}
	return level, err
}

// asks returns what the server of a connection must be asked to wait for: nothing, where its reply is enough, or where
// its disk can't be asked, because a replica alone is worth no more than memory.
func (c *confirmer) asks(conn *connection) (disk, replicas bool) {
	disk, replicas = conn.byReply != pipeline.DurabilityFsync, c.want == pipeline.DurabilityReplica
	if disk && !conn.waitsForDisk {
		return false, false
	}
	return disk, replicas
}

// wait waits for the disk and for a replica, as far as DURABILITY asks for them. The error is one of the connection.
func (c *confirmer) wait(
	ctx context.Context, conn *connection, marker string, own bool,
) (pipeline.Durability, error) {
	needsDisk, needsReplica := c.asks(conn)
	if !needsDisk && !needsReplica {
		return conn.byReply, nil
	}
	pipe := conn.Pipeline()
	write := redis.NewStatusCmd(ctx, "set", marker, "1")
	disk := redis.NewIntSliceCmd(ctx, "waitaof", 1, 0, confirmWait.Milliseconds())
	replicas := redis.NewIntCmd(ctx, "wait", 1, confirmWait.Milliseconds())
	if own {
		// A wait covers what its own connection wrote. This write comes after the order in the one sequence that both the
		// file and the replicas get, so one that has the write has the order.
		_ = pipe.Process(ctx, write) // it is only queued
	}
	if needsDisk {
		_ = pipe.Process(ctx, disk)
	}
	if needsReplica {
		_ = pipe.Process(ctx, replicas)
	}
	_, err := pipe.Exec(ctx)
	level := conn.byReply
	if write.Err() == nil {
		if onDisk := disk.Val(); len(onDisk) > 0 && onDisk[0] >= 1 {
			level = pipeline.DurabilityFsync
		}
		if level == pipeline.DurabilityFsync && replicas.Val() >= 1 {
			level = pipeline.DurabilityReplica
		}
	}
	return level, err
}

// tally counts the outcomes whose receipts state a level, and reports whether one of them is of an earlier call.
func tally(reply lua.AdmitReply) (receipts int, replayed bool) {
	for _, o := range reply.Outcomes {
		if receipted(o.Code) {
			receipts++
			replayed = replayed || o.Code != lua.AdmitAccepted
		}
	}
	return receipts, replayed
}

// report counts the receipts by level, and logs a change of the level.
func (c *confirmer) report(reply lua.AdmitReply, level pipeline.Durability) {
	receipts, _ := tally(reply)
	if receipts == 0 {
		return
	}
	if c.suffices(level) {
		c.metrics.levels.WithLabelValues(string(level)).Add(float64(receipts))
	}
	c.reportChange(level)
}

// reportChange logs a change of the level once.
func (c *confirmer) reportChange(level pipeline.Durability) {
	c.mu.Lock()
	before := c.reported
	c.reported = level
	c.mu.Unlock()
	switch {
	case level == before:
	case level == c.want:
		c.log.Info("accepts are as durable as DURABILITY asks for again", "durability", level)
	case c.strict:
		c.log.Warn("orders are refused, because DURABILITY can't be confirmed and DURABILITY_STRICT is on; "+
			"look at Redis' disk, settings and replicas",
			"durability", level, "wanted", c.want)
	default:
		c.log.Warn("accepts are less durable than DURABILITY asks for, and receipts say so; "+
			"look at Redis' disk, settings and replicas",
			"durability", level, "wanted", c.want)
	}
}
