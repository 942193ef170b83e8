package demo

import (
	"context"
	"fmt"
	"time"

	"sluice/internal/buyers"
)

const (
	turnEvery = 300 * time.Millisecond // between two rounds in which those who wait ask for their turn
	// stillLimit is how long nothing may change, beyond the time to pay, before the demo gives up on what is left.
	stillLimit = 30 * time.Second
)

// awaitExpiry waits until the time to pay is over for those who forgot. Those who wait ask now and then, and pay as
// soon as the turn has come.
func (s *session) awaitExpiry(ctx context.Context) error {
	s.narrator.chapterf("The time to pay ends: what nobody paid for goes to those who wait, first come, first served, and they pay")
	done := s.narrator.watch(func() string { return s.moneyProgress() + s.timeLeft() })
	defer done()
	var last unfinished
	changed := time.Now()
	for time.Since(changed) < s.opts.PayWithin+stillLimit && ctx.Err() == nil {
		buyers.Each(ctx, s.history.Waiting(), buyers.Pace{AtOnce: payersAtOnce}, func(buyer uint32) {
			if order := s.client.AskForTurn(ctx, saleID, buyer); order != "" {
				s.provider.Pay(ctx, buyer, order)
			}
		})
		now, err := s.ledger.unfinished(ctx)
		if err != nil {
			return err
		}
		if settled, err := s.settled(ctx, now); settled || err != nil {
			return err
		}
		if now != last {
			last, changed = now, time.Now()
		}
		buyers.Sleep(ctx, turnEvery)
	}
	return ctx.Err() // the checks say what is left
}

// settled reports whether nothing moves any more: no order waits for money, no money for an order, no unit is on its
// way back, and the stream is empty. It looks at Postgres again after that, so that nothing can slip through between
// the two.
func (s *session) settled(ctx context.Context, before unfinished) (bool, error) {
	if before.any() {
		return false, nil
	}
	length, pending, err := s.queue(ctx)
	if err != nil || length > 0 || pending > 0 {
		return false, err
	}
	after, err := s.ledger.unfinished(ctx)
	return after == before, err
}

// moneyProgress is one look at the money.
func (s *session) moneyProgress() string {
	e, err := s.ledger.ends(context.Background())
	if err != nil {
		return "?"
	}
	return fmt.Sprintf("%s %s of %s units are paid · %s orders wait for payment · %s cancelled, %s expired · %s went to people who waited",
		bar(e.Paid,
			s.opts.Stock), number(e.Paid), number(s.opts.Stock), number(e.Awaiting), number(e.Cancelled),
		number(e.Expired), number(e.HandedOver))
}

// timeLeft says how long nothing can expire yet.
func (s *session) timeLeft() string {
	left := time.Until(s.sale.OpensAt.Add(s.opts.PayWithin))
	if left < time.Second {
		return ""
	}
	return fmt.Sprintf(" · %s left to pay", left.Truncate(time.Second))
}
