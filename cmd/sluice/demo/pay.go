package demo

import (
	"context"
	"sync"
	"time"

	"sluice/internal/buyers"
)

const payersAtOnce = 32 // as many webhooks of a provider are under way at once

// pay has the buyers of the rush do with their orders what each of them does. Nobody pays for those who forget.
func (s *session) pay(ctx context.Context, endings []ending) error {
	count := map[fate]int{}
	for _, e := range endings {
		count[e.fate]++
	}
	s.narrator.chapterf("The payment provider tells of %s payments, signed; %s cancel, %s forget to pay",
		number(len(endings)-count[cancels]-count[forgets]), number(count[cancels]), number(count[forgets]))
	s.history.ChangesFrom(time.Now())
	done := s.narrator.watch(s.moneyProgress)
	buyers.Each(ctx, endings, buyers.Pace{AtOnce: payersAtOnce}, func(e ending) { s.settle(ctx, e) })
	done()
	s.narrator.notef("%s were reported twice, %s under two names, %s with a wrong amount, %s by somebody without the secret",
		number(count[paysTwice]), number(count[paysRenamed]), number(count[paysWrong]), number(count[isForged]))
	if early := s.history.Payments()[buyers.PaymentWaiting]; early > 0 {
		s.narrator.notef("%s came before the order was in Postgres (a dead worker holds it), and waits for it",
			plural(early, "payment"))
	}
	return ctx.Err()
}

// settle does with one order what its buyer does.
func (s *session) settle(ctx context.Context, e ending) {
	switch e.fate {
	case pays:
		s.provider.Pay(ctx, e.buyer, e.order)
	case paysTwice:
		var other sync.WaitGroup
		other.Go(func() { s.provider.Pay(ctx, e.buyer, e.order) })
		s.provider.Pay(ctx, e.buyer, e.order)
		other.Wait()
	case paysRenamed:
		s.provider.Pay(ctx, e.buyer, e.order)
		s.provider.PayAgain(ctx, e.buyer, e.order)
	case paysWrong:
		s.provider.PayWrong(ctx, e.buyer, e.order)
	case isForged:
		s.provider.Forge(ctx, e.buyer, e.order)
	case cancels:
		s.client.Cancel(ctx, saleID, e.buyer, e.order)
	case forgets:
	}
}
