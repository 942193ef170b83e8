package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"sluice/internal/buyers"
	"sluice/pipeline"
)

// announce creates the sale and lets the impatient ones find it closed.
func (s *session) announce(ctx context.Context) error {
	now, err := s.redis.Time(ctx).Result()
	if err != nil {
		return err
	}
	opens := now.Add(opensIn)
	s.sale = &pipeline.Sale{
		ID: saleID, Title: "Demo", Total: int64(s.opts.Stock), MaxQuantity: 1,
		OpensAt: opens, ClosesAt: opens.Add(saleLasts + s.opts.PayWithin), PaymentWindow: s.opts.PayWithin,
		UnitPrice: unitPrice, Currency: currency, Waitlist: pipeline.MaxWaitlist,
	}
	if err := s.publisher.Create(ctx, s.sale); err != nil {
		return err
	}
	s.history.ChangesFrom(opens.Add(s.opts.PayWithin)) // nothing can expire before
	s.narrator.chapterf("A sale of %s units, to be paid within %s, opens in %s; %s buyers wait, some can't (seed %d)",
		number(s.opts.Stock), s.opts.PayWithin, opensIn, number(s.opts.Buyers), s.opts.Seed)
	s.ask(ctx, s.plan.early, pace{rate: calmRate})
	s.narrator.notef("%s came too early: %s", number(len(s.plan.early)), s.times(buyers.NotOpen))
	buyers.Sleep(ctx, time.Until(opens)) // the private Redis has this machine's clock
	return ctx.Err()
}

// ask sends requests at a pace and returns when each has its answer. When the API is slower than the pace, requests
// queue as in any crowd. A client that gives up does not ask again by itself: its next request is planned.
func (s *session) ask(ctx context.Context, requests []buyers.Request, p pace) {
	buyers.Each(ctx, requests, buyers.Pace{AtOnce: connections, Gap: p.gap}, func(r buyers.Request) {
		o, sent := s.client.Ask(ctx, 0, r)
		if o == buyers.NoAnswer && !r.Abandon && ctx.Err() == nil {
			s.history.Strangef("%s got no answer in %d attempts", r.User(), sent)
		}
	})
}

// rush is the sale, with a worker's death in the middle of it; then those who got nothing wait, and the others pay.
// That goes on while the dead worker's orders are still pending.
func (s *session) rush(ctx context.Context) error {
	s.narrator.chapterf("The rush: %s requests, with retries, double clicks and clients that give up; a worker will die in the middle", number(len(s.plan.rush)))
	var killing sync.WaitGroup
	var killErr, nodeErr error
	killing.Go(func() { nodeErr = s.killNode(ctx) })
	killing.Go(func() { killErr = s.killWorker(ctx) })
	done := s.narrator.watch(func() string { return s.rushProgress(ctx) })
	began := time.Now()
	s.ask(ctx, s.plan.rush, newPace(len(s.plan.rush), s.opts.Rate))
	s.rushTook = time.Since(began)
	done()
	close(s.rushOver)
	err := s.awaitNode(ctx)
	if err == nil {
		err = s.afterRush(ctx)
	}
	if err == nil {
		s.narrator.chapterf("What the dead worker held: once its heartbeat has run out, another worker takes it over")
		done = s.narrator.watch(func() string { return s.backlog(ctx) })
		killing.Wait()
		err = s.drain(ctx)
		done()
	}
	killing.Wait()
	if err := errors.Join(nodeErr, killErr, err); err != nil {
		return err
	}
	s.narrateTakeover()
	return nil
}

// afterRush is what buyers do once everything is sold. Those who gave up and still don't know what they have ask
// again first.
func (s *session) afterRush(ctx context.Context) error {
	s.ask(ctx, s.history.Open(), pace{rate: calmRate})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if left := time.Until(s.sale.OpensAt.Add(s.opts.PayWithin)); left <= 0 {
		return fmt.Errorf("the rush took longer than the %s in which buyers have to pay: try again with a longer --pay-within, or a lower --requests", s.opts.PayWithin)
	}
	random := rand.New(rand.NewPCG(s.opts.Seed, 1)) // 0 is the plan's
	endings := assignFates(random, s.history.Owners(), s.inFlightAtKill())
	units := 0
	for _, e := range endings {
		if e.frees() {
			units++
		}
	}
	if err := s.joinWaitlist(ctx, random, units); err != nil {
		return err
	}
	return s.pay(ctx, endings)
}

// end closes the sale; the last ones come too late.
func (s *session) end(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	closed := pipeline.SaleClosed
	sale, err := s.publisher.Change(ctx, saleID, actor, pipeline.SaleChange{State: &closed})
	if err != nil {
		return err
	}
	s.sale = sale
	s.narrator.chapterf("The sale is closed; %s more requests come too late", number(len(s.plan.late)))
	s.ask(ctx, s.plan.late, pace{rate: calmRate})
	s.narrator.notef("%s", s.times(buyers.Closed))
	return ctx.Err()
}

// drain waits until the stream is empty and nothing is pending.
func (s *session) drain(ctx context.Context) error {
	for until := time.Now().Add(drainLimit); time.Now().Before(until) && ctx.Err() == nil; buyers.Sleep(ctx, countEvery) {
		length, pending, err := s.queue(ctx)
		if err != nil || length == 0 && pending == 0 {
			return err
		}
	}
	return ctx.Err() // the checks say what is left
}
