package notification

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// hubSilence is how long the subscription may be silent until Redis is asked for a sign of life, and then again until
// it is taken for dead.
const hubSilence = 5 * time.Second

var errSilentRedis = errors.New("redis: no sign of life on the subscription")

// listen keeps one subscription alive, to the channels of all partitions, until the context ends.
func (h *Hub) listen(ctx context.Context) {
	backoff := retry.NewBackoff()
	failing := false
	for ctx.Err() == nil {
		err := h.subscribe(ctx, func() {
			backoff.Reset()
			failing = false
		})
		if ctx.Err() != nil {
			return
		}
		if !failing {
			failing = true
			h.Log.Warn("subscription lost; until it is back changes are found by the sweep", "error", err)
		}
		backoff.Wait(ctx)
	}
}

// subscribe makes a subscription and listens until it fails. On a Redis Cluster any node gets the messages of all.
func (h *Hub) subscribe(ctx context.Context, subscribed func()) error {
	channels := make([]string, h.Partitions)
	for p := range channels {
		channels[p] = h.Keys.Changes(pipeline.Partition(p))
	}
	partition := make(map[string]pipeline.Partition, len(channels))
	for p, channel := range channels {
		partition[channel] = pipeline.Partition(p)
	}
	sub := h.Redis.Subscribe(ctx)
	defer func() { _ = sub.Close() }()                           // nothing more is read from it
	unhook := context.AfterFunc(ctx, func() { _ = sub.Close() }) // the end of the context interrupts no read
	defer unhook()
	if err := sub.Subscribe(ctx, channels...); err != nil {
		return err
	}
	asked := false
	for {
		message, err := sub.ReceiveTimeout(ctx, hubSilence)
		if silent(err) && !asked {
			asked, err = true, sub.Ping(ctx)
			if err == nil {
				continue
			}
		}
		if silent(err) {
			return errSilentRedis
		}
		if err != nil {
			return err
		}
		asked = false
		switch m := message.(type) {
		case *redis.Subscription:
			if m.Count == len(channels) {
				subscribed()
				h.startSweep() // for what was published while nobody listened
			}
		case *redis.Message:
			h.queueChanged(parseChanges(partition[m.Channel], m.Payload))
		}
	}
}

// silent reports whether an error is only that nothing came in time.
func silent(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}
