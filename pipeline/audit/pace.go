package audit

import (
	"context"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/retry"
)

const (
	// restShare is how much longer than it works an audit rests while buyers order: it takes a fifth of the time of Redis'
	// one thread, of a connection to Postgres and of its own processor. Without rests, a sale on two cores accepts a third
	// fewer orders while it is audited.
	restShare = 4
	// longestWork is the longest piece of work that is rested from: what took longer was spent waiting.
	longestWork = 50 * time.Millisecond
	// busyCheck is how often it is asked whether buyers order. An audit that is done sooner never rests.
	busyCheck = 100 * time.Millisecond
)

// pace keeps an audit from slowing a sale down: after each page that it has read it rests, but only while buyers order.
type pace struct {
	items    int       // of this page
	resumed  time.Time // when the work went on
	checked  time.Time // when it was asked last whether buyers order
	accepted int64     // accepts by then
	busy     bool      // whether there were more than before
}

func newPace(before PartitionCounters) pace {
	now := time.Now()
	return pace{resumed: now, checked: now, accepted: before.sum().Accepted}
}

// rest is called for each item that was read.
func (l *look) rest(ctx context.Context) error {
	p := &l.pace
	if p.items++; p.items < redisstore.PageSize {
		return nil
	}
	p.items = 0
	if time.Since(p.checked) >= busyCheck {
		counters, err := l.Counters(ctx, l.sale)
		if err != nil {
			return err
		}
		accepted := counters.sum().Accepted
		p.busy, p.accepted, p.checked = accepted != p.accepted, accepted, time.Now()
	}
	if p.busy {
		retry.Sleep(ctx, restShare*min(time.Since(p.resumed), longestWork))
	}
	p.resumed = time.Now()
	if ctx.Err() != nil {
		return pipeline.Wrap(pipeline.KindUnavailable, ctx.Err(), "the audit was cut off")
	}
	return nil
}
