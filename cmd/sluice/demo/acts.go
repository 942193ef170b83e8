package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"sluice/pipeline"
)

// announce creates the sale and lets the impatient ones find it closed.
func (s *show) announce(ctx context.Context) error {
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
	s.history.changes(opens.Add(s.opts.PayWithin)) // nothing can expire before
	s.voice.chapterf("A sale of %s units, to be paid within %s, opens in %s; %s buyers wait, some can't (seed %d)",
		number(s.opts.Stock), s.opts.PayWithin, opensIn, number(s.opts.Buyers), s.opts.Seed)
	s.crowd.rush(ctx, s.plan.early, pace{rate: earlyRate})
	s.voice.notef("%s came too early: %s", number(len(s.plan.early)), s.codes(codeNotOpen))
	sleep(ctx, time.Until(opens)) // the private Redis has this machine's clock
	return ctx.Err()
}

// rush is the sale, with a worker's death in the middle of it; then those who got nothing wait, and the others pay. That goes
// on while the dead worker's orders lie in its hands.
func (s *show) rush(ctx context.Context) error {
	s.voice.chapterf("The rush: %s requests, with retries, double clicks and clients that give up; a worker will die in the middle", number(len(s.plan.rush)))
	var accident sync.WaitGroup
	var accidentErr error
	accident.Go(func() { accidentErr = s.causeAccident(ctx) })
	done := s.voice.watch(s.picture(ctx))
	began := time.Now()
	s.crowd.rush(ctx, s.plan.rush, newPace(len(s.plan.rush), s.opts.Rate))
	s.rushTook = time.Since(began)
	done()
	close(s.rushOver)
	err := s.afterRush(ctx)
	if err == nil {
		s.voice.chapterf("What the dead worker held: once its heartbeat has run out, another worker takes it over")
		done = s.voice.watch(func() string { return s.backlog(ctx) })
		accident.Wait()
		err = s.drain(ctx)
		done()
	}
	accident.Wait()
	if err := errors.Join(accidentErr, err); err != nil {
		return err
	}
	s.tellRescue()
	return nil
}

// afterRush is what buyers do once everything is sold. Those who gave up and still don't know what they have ask again first.
func (s *show) afterRush(ctx context.Context) error {
	s.crowd.rush(ctx, s.history.open(), pace{rate: earlyRate})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if left := time.Until(s.sale.OpensAt.Add(s.opts.PayWithin)); left <= 0 {
		return fmt.Errorf("the rush took longer than the %s in which buyers have to pay: try again with a longer --pay-within, or a lower --requests", s.opts.PayWithin)
	}
	random := rand.New(rand.NewPCG(s.opts.Seed, 1)) // 0 is the plan's
	pledges := deal(random, s.history.owners(), s.inHand())
	units := 0
	for _, p := range pledges {
		if p.frees() {
			units++
		}
	}
	if err := s.queueUp(ctx, random, units); err != nil {
		return err
	}
	return s.pay(ctx, pledges)
}

// end closes the sale; the last ones come too late.
func (s *show) end(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	closed := pipeline.SaleClosed
	sale, err := s.publisher.Change(ctx, saleID, actor, pipeline.SaleChange{State: &closed})
	if err != nil {
		return err
	}
	s.sale = sale
	s.voice.chapterf("The sale is closed; %s more requests come too late", number(len(s.plan.late)))
	s.crowd.rush(ctx, s.plan.late, pace{rate: earlyRate})
	s.voice.notef("%s", s.codes(codeClosed))
	return ctx.Err()
}

// drain waits until the stream is empty and nobody holds anything.
func (s *show) drain(ctx context.Context) error {
	for until := time.Now().Add(drainLimit); time.Now().Before(until) && ctx.Err() == nil; sleep(ctx, countEvery) {
		length, pending, err := s.queue(ctx)
		if err != nil {
			return err
		}
		if length == 0 && pending == 0 {
			return nil
		}
	}
	return ctx.Err() // the checks say what is left
}
