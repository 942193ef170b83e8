package demo

import (
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	payersAtOnce    = 32     // as many webhooks of a provider are under way at once
	wrongBy         = 1      // minor units that a wrong amount lacks
	statusPaid      = "paid" // of an order, as the next ones
	statusCancelled = "cancelled"
	statusExpired   = "expired"
	statusRejected  = "rejected"
)

// pay has the buyers of the rush do with their orders what each of them does. Nobody pays for those who forget.
func (s *show) pay(ctx context.Context, pledges []pledge) error {
	count := map[fate]int{}
	for _, p := range pledges {
		count[p.fate]++
	}
	s.voice.chapterf("The payment provider tells of %s payments, signed; %s cancel, %s forget to pay",
		number(len(pledges)-count[cancels]-count[forgets]), number(count[cancels]), number(count[forgets]))
	s.history.changes(time.Now())
	done := s.voice.watch(s.takings)
	swarm(ctx, pledges, payersAtOnce, func(p pledge) { s.settle(ctx, p) })
	done()
	s.voice.notef("%s were told twice, %s under two names, %s with a wrong amount, %s by somebody without the secret",
		number(count[paysTwice]), number(count[paysRenamed]), number(count[paysWrong]), number(count[isForged]))
	if early := s.earlyMoney(); early > 0 {
		s.voice.notef("%s came before the order was in Postgres (a dead worker holds it), and waits for it", plural(early, "payment"))
	}
	return ctx.Err()
}

// settle does with one order what its buyer does.
func (s *show) settle(ctx context.Context, p pledge) {
	switch p.fate {
	case pays:
		s.tell(ctx, p)
	case paysTwice:
		var other sync.WaitGroup
		other.Go(func() { s.tell(ctx, p) })
		s.tell(ctx, p)
		other.Wait()
	case paysRenamed:
		s.tell(ctx, p)
		m := messageOf(p)
		m.webhookID += "-again"
		s.noteMoney(ctx, s.provider, p, m, s.history.again)
	case paysWrong:
		m := messageOf(p)
		m.webhookID, m.paymentID, m.amount = m.webhookID+"-wrong", m.paymentID+"-wrong", m.amount-wrongBy
		s.noteMoney(ctx, s.provider, p, m, s.history.bad)
	case isForged:
		m := messageOf(p)
		m.webhookID, m.paymentID = m.webhookID+"-forged", m.paymentID+"-forged"
		s.noteMoney(ctx, s.forger, p, m, s.history.bad)
	case cancels:
		s.cancel(ctx, p)
	case forgets:
	}
}

// tell has the provider tell of the right money.
func (s *show) tell(ctx context.Context, p pledge) {
	s.noteMoney(ctx, s.provider, p, messageOf(p), s.history.paid)
}

func (s *show) noteMoney(ctx context.Context, by *provider, p pledge, m message, note func(pledge, reply)) {
	got, err := by.tell(ctx, m)
	if err != nil {
		s.unanswered(ctx, "a payment of order "+p.orderID, err)
		return
	}
	note(p, got)
}

func (s *show) cancel(ctx context.Context, p pledge) {
	got, err := s.client.call(ctx, http.MethodPost, "/orders/"+p.orderID+"/cancel", (ask{buyer: p.buyer}).user(), "")
	if err != nil {
		s.unanswered(ctx, "cancelling order "+p.orderID, err)
		return
	}
	s.history.cancelled(p, got)
}

// unanswered is no finding when the demo itself was told to end.
func (s *show) unanswered(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		s.history.unanswered(what, err)
	}
}

// earlyMoney counts payments that wait for their order, as far as the provider was told.
func (s *show) earlyMoney() (n int) {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	return s.history.payments[moneyWaiting]
}
