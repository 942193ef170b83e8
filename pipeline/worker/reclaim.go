package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// reclaimLoop looks every reclaimInterval for events that were delivered and are not being processed, and processes
// them: those of dead workers, those whose delivery to this worker got lost, and those that have been idle for long.
func (w *Worker) reclaimLoop(ctx context.Context) {
	cursors := make([]string, w.opts.Partitions) // of XAUTOCLAIM: from the start each time, it would never reach the end
	for round := 0; ; round++ {
		retry.Sleep(ctx, reclaimInterval*3/4+rand.N(reclaimInterval/2)) // jitter: workers take turns
		if ctx.Err() != nil {
			return
		}
		w.seen.forget()
		if err := w.reclaim(ctx, cursors, round%livingRounds == 0); err != nil && ctx.Err() == nil {
			w.stepFailed("reclaim", err)
		}
	}
}

func (w *Worker) reclaim(ctx context.Context, cursors []string, living bool) error {
	pending, err := w.pending(ctx)
	errs := []error{err} // one partition's error never delays another partition
	for p, summary := range pending {
		if summary.Count > 0 {
			errs = append(errs, w.reclaimPartition(ctx, p, summary, cursors, living))
		}
	}
	return errors.Join(append(errs, w.observe(ctx, pending))...)
}

func (w *Worker) reclaimPartition(
	ctx context.Context, p pipeline.Partition, summary *redis.XPending, cursors []string, living bool,
) error {
	dead, alive, err := w.consumers(ctx, p, summary)
	if err != nil {
		return err
	}
	for _, consumer := range dead {
		// Half a heartbeat's TTL: what another worker has just claimed is younger, and remains with it.
		if err := w.takeOver(ctx, p, consumer, heartbeatTTL/2, reclaimDead); err != nil {
			return err
		}
	}
	if err := w.takeOver(ctx, p, w.opts.Name, strandedMinIdle, "stranded"); err != nil {
		return err
	}
	if living {
		for _, consumer := range alive {
			if err := w.takeOver(ctx, p, consumer, w.opts.ClaimMinIdle, reclaimIdle); err != nil {
				return err
			}
		}
	}
	return w.claimIdle(ctx, p, cursors)
}

// pending asks for the summary of every partition's pending list in one round trip, and returns those that it got. Each
// costs some 20 µs, however long the list is.
func (w *Worker) pending(ctx context.Context) (map[pipeline.Partition]*redis.XPending, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	pipe := w.rdb.Pipeline()
	asked := make([]*redis.XPendingCmd, w.opts.Partitions)
	for p := range pipeline.Partition(w.opts.Partitions) {
		asked[p] = pipe.XPending(ctx, w.keys.Orders(p), pipeline.Group)
	}
	if _, err := retry.Exec(ctx, pipe); err != nil {
		return nil, err
	}
	summaries := make(map[pipeline.Partition]*redis.XPending, len(asked))
	var errs []error
	for p, cmd := range asked {
		if cmd.Err() != nil {
			errs = append(errs, cmd.Err())
			continue
		}
		summaries[pipeline.Partition(p)] = cmd.Val()
	}
	if slices.ContainsFunc(errs, func(err error) bool { return redis.HasErrorPrefix(err, "NOGROUP") }) {
		errs = append(errs, w.ensureGroups(ctx))
	}
	return summaries, errors.Join(errs...)
}

// consumers returns the other consumers with pending entries: those without a heartbeat, and those with one. A
// heartbeat that would last longer than any was set under a clock that has jumped since: it gets the usual time from
// now on, in which a worker that lives beats again.
func (w *Worker) consumers(
	ctx context.Context, p pipeline.Partition, summary *redis.XPending,
) (dead, alive []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	pipe := w.rdb.Pipeline()
	beats := map[string]*redis.DurationCmd{}
	for consumer := range summary.Consumers {
		if consumer != w.opts.Name {
			beats[consumer] = pipe.PTTL(ctx, w.keys.Worker(p, consumer))
		}
	}
	if len(beats) == 0 {
		return nil, nil, nil
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, nil, err
	}
	for consumer, cmd := range beats {
		switch left := cmd.Val(); {
		case left == noKey:
			dead = append(dead, consumer)
		case left > heartbeatTTL:
			err = errors.Join(err, w.rdb.PExpire(ctx, w.keys.Worker(p, consumer), heartbeatTTL).Err())
			alive = append(alive, consumer)
		default:
			alive = append(alive, consumer)
		}
	}
	return dead, alive, err
}

// takeOver claims and processes what is pending for a consumer for at least minIdle, batch after batch: by Redis'
// clock, or because this worker has seen it pending for so long. Entries that were delivered very often are processed
// one by one: one that kills workers then harms no other.
func (w *Worker) takeOver(
	ctx context.Context, p pipeline.Partition, consumer string, minIdle time.Duration, reason string,
) error {
	from := "-"
	for ctx.Err() == nil {
		page, err := w.pendingOf(ctx, p, consumer, from)
		if err != nil || len(page) == 0 {
			return err
		}
		from = "(" + page[len(page)-1].ID
		var together, alone []lua.PendingEntry
		for _, e := range page {
			one := lua.PendingEntry{ID: e.ID}
			seen := w.seen.age(delivery{entryKey{p, e.ID}, e.Consumer, e.RetryCount})
			if e.Idle < minIdle {
				one.Deliveries = e.RetryCount
			}
			switch {
			case w.inFlight.has(p, e.ID), e.Idle < minIdle && seen < minIdle:
			case e.RetryCount >= int64(w.opts.MaxDeliveries):
				alone = append(alone, one)
			default:
				together = append(together, one)
			}
		}
		if err := w.claimAndProcess(ctx, p, together, minIdle, reason); err != nil {
			return err
		}
		for _, one := range alone {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := w.claimAndProcess(ctx, p, []lua.PendingEntry{one}, minIdle, reason); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *Worker) pendingOf(
	ctx context.Context, p pipeline.Partition, consumer, from string,
) ([]redis.XPendingExt, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	return w.rdb.XPendingExt(ctx, &redis.XPendingExtArgs{
		Stream: w.keys.Orders(p), Group: pipeline.Group, Consumer: consumer,
		Start: from, End: "+", Count: int64(w.opts.BatchSize),
	}).Result()
}

func (w *Worker) claimAndProcess(
	ctx context.Context, p pipeline.Partition, entries []lua.PendingEntry, minIdle time.Duration, reason string,
) error {
	if len(entries) == 0 {
		return nil
	}
	generation := w.current()
	claimed, lost, err := w.claim(ctx, p, entries, minIdle)
	if err != nil {
		return err
	}
	w.reportLost(p, lost)
	w.takenOver(ctx, generation, p, claimed, reason)
	return nil
}

func (w *Worker) claim(
	ctx context.Context, p pipeline.Partition, entries []lua.PendingEntry, minIdle time.Duration,
) ([]redis.XMessage, []string, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	consumer := lua.Consumer{Stream: w.keys.Orders(p), Group: pipeline.Group, Name: w.opts.Name}
	return lua.Claim(ctx, w.rdb, consumer, minIdle, entries)
}

func (w *Worker) takenOver(
	ctx context.Context, generation pipeline.Generation, p pipeline.Partition, messages []redis.XMessage, reason string,
) {
	if len(messages) == 0 {
		return
	}
	w.metrics.reclaims.WithLabelValues(reason).Add(float64(len(messages)))
	w.log.Info("took over pending events", "partition", p, "events", len(messages), "reason", reason)
	w.process(ctx, generation, appendEntries(nil, p, messages))
}

// claimIdle goes on through the pending list from where it stopped and takes what has been idle for longer than
// ClaimMinIdle, from any consumer: a worker may live and yet hang. It also finds pending entries whose event was
// deleted.
func (w *Worker) claimIdle(ctx context.Context, p pipeline.Partition, cursors []string) error {
	for ctx.Err() == nil {
		if cursors[p] == "" {
			cursors[p] = "0-0"
		}
		generation := w.current()
		messages, next, deleted, err := w.autoClaim(ctx, p, cursors[p])
		if err != nil {
			cursors[p] = ""
			return err
		}
		cursors[p] = next
		w.reportLost(p, deleted)
		w.takenOver(ctx, generation, p, messages, reclaimIdle)
		if len(messages) == 0 || next == "0-0" {
			return nil
		}
	}
	return nil
}

func (w *Worker) autoClaim(
	ctx context.Context, p pipeline.Partition, cursor string,
) ([]redis.XMessage, string, []string, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	return w.rdb.XAutoClaimWithDeleted(ctx, &redis.XAutoClaimArgs{
		Stream: w.keys.Orders(p), Group: pipeline.Group, Consumer: w.opts.Name, MinIdle: w.opts.ClaimMinIdle,
		Start: cursor, Count: int64(w.opts.BatchSize),
	}).Result()
}

// reportLost counts and logs events that were deleted after they were accepted and before they were persisted. No part
// of Sluice does that.
func (w *Worker) reportLost(p pipeline.Partition, ids []string) {
	if len(ids) == 0 {
		return
	}
	w.metrics.eventsLost.Add(float64(len(ids)))
	w.log.Error("events were deleted from the stream before they were persisted; run sluice audit",
		"partition", p, "count", len(ids), "first", ids[0])
}

// entryTime is the time at which a stream entry was written, from its id; zero where the id has none.
func entryTime(id string) time.Time {
	ms, _, _ := strings.Cut(id, "-")
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n)
}
