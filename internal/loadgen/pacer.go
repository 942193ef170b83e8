package loadgen

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// maxPause bounds one wait for the next arrival, so that an interrupted load ends soon.
const maxPause = 50 * time.Millisecond

// arrival is one buyer of the schedule.
type arrival struct {
	due   time.Duration // when the request is meant to be sent, after the load began
	buyer uint64
}

// pacer lets buyers arrive by their schedule, whatever becomes of them.
type pacer struct {
	rate     float64 // per second, on average
	until    time.Duration
	next     arrival
	random   *rand.Rand
	recorder *recorder
}

func newPacer(c *Config, r *recorder) *pacer {
	return &pacer{
		rate: c.Rate, until: c.WarmUp + c.Length, next: arrival{buyer: c.First},
		random: rand.New(rand.NewPCG(c.Seed, c.First)), recorder: r,
	}
}

// run puts each buyer into the queue when the time has come. A buyer who finds the queue full is not sent, and counted.
func (p *pacer) run(ctx context.Context, began time.Time, queue chan<- arrival) (err error) {
	t, err := newTimer()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	for {
		p.next.due += time.Duration(p.random.ExpFloat64() / p.rate * float64(time.Second))
		if p.next.due >= p.until {
			return nil
		}
		if err := p.await(ctx, t, began); err != nil {
			return err
		}
		select {
		case queue <- p.next:
		default:
			p.recorder.notSent(p.next)
		}
		p.next.buyer++
	}
}

// await returns when the next buyer is due, and records by how much the generator itself was late.
func (p *pacer) await(ctx context.Context, t *timer, began time.Time) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		early := p.next.due - time.Since(began)
		if early <= 0 {
			p.recorder.late(p.next, -early)
			return nil
		}
		if err := t.sleep(min(early, maxPause)); err != nil {
			return err
		}
	}
}
