package demo

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const (
	turnEvery = 300 * time.Millisecond // between two rounds in which those who wait ask for their turn
	// stillLimit is how long nothing may change, beyond the time to pay, before the demo gives up on what is left.
	stillLimit = 30 * time.Second
)

// takeTurns waits until the time to pay is over for those who forgot. Whoever waits asks now and then, and pays as soon as
// the turn has come.
func (s *show) takeTurns(ctx context.Context) error {
	s.voice.chapterf("The time to pay ends: what nobody paid for goes to those who wait, first come, first served, and they pay")
	done := s.voice.watch(func() string { return s.takings() + s.timeLeft() })
	defer done()
	var last moving
	changed := time.Now()
	for time.Since(changed) < s.opts.PayWithin+stillLimit && ctx.Err() == nil {
		swarm(ctx, s.history.waiting(), payersAtOnce, func(buyer int) { s.askForTurn(ctx, buyer) })
		now, err := s.ledger.moving(ctx)
		if err != nil {
			return err
		}
		if settled, err := s.settled(ctx, now); settled || err != nil {
			return err
		}
		if now != last {
			last, changed = now, time.Now()
		}
		sleep(ctx, turnEvery)
	}
	return ctx.Err() // the checks say what is left
}

func (s *show) askForTurn(ctx context.Context, buyer int) {
	got, err := s.client.call(ctx, http.MethodGet, "/waitlist", (ask{buyer: buyer}).user(), "")
	if err != nil {
		s.unanswered(ctx, (ask{buyer: buyer}).user()+" asks for the turn", err)
		return
	}
	if s.history.looked(buyer, got) {
		s.tell(ctx, pledge{buyer: buyer, orderID: got.orderID})
	}
}

// settled reports whether nothing moves any more: no order waits for money, no money for an order, no unit is on its way back,
// and the stream is empty. It looks at Postgres again after that, so that nothing can slip through between the two.
func (s *show) settled(ctx context.Context, before moving) (bool, error) {
	if before.any() {
		return false, nil
	}
	length, pending, err := s.queue(ctx)
	if err != nil || length > 0 || pending > 0 {
		return false, err
	}
	after, err := s.ledger.moving(ctx)
	return after == before, err
}

// takings is one look at the money.
func (s *show) takings() string {
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	t, err := s.look.takings(ctx)
	if err != nil {
		return "?"
	}
	return fmt.Sprintf("%s %s of %s units are paid · %s orders wait for payment · %s cancelled, %s expired · %s went to people who waited",
		bar(t.Paid, s.opts.Stock), number(t.Paid), number(s.opts.Stock), number(t.Awaiting), number(t.Cancelled), number(t.Expired), number(t.HandedOver))
}

// timeLeft tells how long nothing can expire yet.
func (s *show) timeLeft() string {
	left := time.Until(s.sale.OpensAt.Add(s.opts.PayWithin))
	if left < time.Second {
		return ""
	}
	return fmt.Sprintf(" · %s left to pay", left.Truncate(time.Second))
}
