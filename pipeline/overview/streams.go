package overview

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// Stream is what waits on one partition: events that are not in Postgres yet, or not acknowledged. Each event is
// deleted once it is settled.
type Stream struct {
	Partition pipeline.Partition
	Length    int64
	Lag       int64     // not delivered to a worker yet; -1 where Redis does not know
	Pending   int64     // delivered and not acknowledged
	Oldest    time.Time // when the oldest event was accepted; zero: there is none
}

// readStreams asks for all partitions in one round trip.
func (r *Reader) readStreams(ctx context.Context, g *Glance) error {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	pipe := r.Redis.Pipeline()
	clock := pipe.Time(ctx)
	lengths := make([]*redis.IntCmd, r.Partitions)
	groups := make([]*redis.XInfoGroupsCmd, r.Partitions)
	firsts := make([]*redis.XMessageSliceCmd, r.Partitions)
	consumers := make([]*redis.XInfoConsumersCmd, r.Partitions)
	for p := range pipeline.Partition(r.Partitions) {
		key := r.Keys.Orders(p)
		lengths[p], groups[p] = pipe.XLen(ctx, key), pipe.XInfoGroups(ctx, key)
		firsts[p], consumers[p] = pipe.XRangeN(ctx, key, "-", "+", 1), pipe.XInfoConsumers(ctx, key, pipeline.Group)
	}
	if _, err := retry.Exec(ctx, pipe); err != nil {
		return unavailable(err)
	}
	now, err := clock.Result()
	if err != nil {
		return unavailable(err)
	}
	g.At, g.Streams = now.UTC(), make([]Stream, r.Partitions)
	byName := map[string]*Worker{}
	for p := range pipeline.Partition(r.Partitions) {
		for _, err := range []error{lengths[p].Err(), groups[p].Err(), firsts[p].Err(), consumers[p].Err()} {
			if err != nil && !absent(err) {
				return unavailable(err)
			}
		}
		s := Stream{Partition: p, Length: lengths[p].Val()}
		for _, group := range groups[p].Val() {
			if group.Name == pipeline.Group {
				s.Lag, s.Pending = group.Lag, group.Pending
			}
		}
		if first := firsts[p].Val(); len(first) > 0 {
			s.Oldest = entryTime(first[0].ID)
		}
		g.Streams[p] = s
		for _, c := range consumers[p].Val() {
			noteConsumer(byName, c)
		}
	}
	return r.readHeartbeats(ctx, g, byName)
}

// absent reports whether an error says that a stream or its group does not exist: no order was ever accepted there, and
// no worker has read from it.
func absent(err error) bool {
	return redis.HasErrorPrefix(err, "NOGROUP") || strings.Contains(err.Error(), "no such key")
}

// entryTime is when an event was accepted, by its entry's id.
func entryTime(id string) time.Time {
	ms, _, _ := strings.Cut(id, "-")
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}

func unavailable(err error) error {
	if redis.HasErrorPrefix(err, "NOPERM") {
		return pipeline.Wrap(pipeline.KindUnavailable, err,
			"Redis does not let this program look at the streams; give its user the rights that sluice acl prints")
	}
	return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not answer")
}
