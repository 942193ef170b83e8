package payments

import (
	"context"
	"errors"
	"time"

	"sluice/pipeline"
)

const (
	// waitingEvery is how long after its order a payment may be decided.
	waitingEvery = 500 * time.Millisecond
	// waitingPage is how many payments are looked at at once.
	waitingPage = 500
)

// Job decides payments whose orders have been stored since they came.
func (s *Service) Job() pipeline.Job {
	return pipeline.Job{Name: "payments", Every: waitingEvery, Run: s.DecideWaitingPayments}
}

// DecideWaitingPayments decides every payment that waits and can be decided: by its order, once that has a row, or as
// refused, once nothing of its time is queued any more. Running twice, at once or after a crash at any point, decides
// nothing twice. One payment's error delays no other. About each sale Redis is asked no more in this run once it did
// not answer, or something of that time is queued: for later payments it would say the same, and each question may take
// a second.
func (s *Service) DecideWaitingPayments(ctx context.Context) error {
	var errs []error
	s.waiting.Lock()
	defer s.waiting.Unlock()
	run := waitingRun{queued: map[string]bool{}, fresh: map[string]instants{}, looked: map[int64]instants{}}
	defer func() { s.looked = run.looked }()
	for after := int64(0); ctx.Err() == nil; {
		page, err := s.store.WaitingPayments(ctx, after, waitingPage)
		if err != nil {
			return err
		}
		for i := range page {
			if ctx.Err() != nil {
				return errors.Join(append(errs, ctx.Err())...)
			}
			if err := s.decideWaiting(ctx, &page[i], &run); err != nil {
				errs = append(errs, err)
			}
		}
		if len(page) < waitingPage {
			return errors.Join(errs...)
		}
		after = page[len(page)-1].ID
	}
	return ctx.Err()
}

// waitingRun is one run of the job.
type waitingRun struct {
	queued map[string]bool     // sales whose streams are not known to be settled
	fresh  map[string]instants // by sale, of the payments that this process has not looked at before
	looked map[int64]instants  // by payment, for the next run
}

// instantsOf are those of the first look at a payment by this process, which was after its order's event was written.
// No clock is compared with another: that of Postgres, which knows when the payment came, may be wrong.
func (s *Service) instantsOf(w *WaitingPayment, sale *pipeline.Sale, run *waitingRun) instants {
	at, known := s.looked[w.ID]
	if !known {
		if at, known = run.fresh[w.SaleID]; !known {
			at = newInstants(sale)
			run.fresh[w.SaleID] = at
		}
	}
	run.looked[w.ID] = at
	return at
}

func (s *Service) decideWaiting(ctx context.Context, w *WaitingPayment, run *waitingRun) error {
	if !w.Stored && run.queued[w.SaleID] {
		if at, known := s.looked[w.ID]; known {
			run.looked[w.ID] = at
		}
		return nil
	}
	sale, err := s.sales.Sale(ctx, w.SaleID)
	if err != nil {
		return err
	}
	var absent Decision // goes on waiting
	if !w.Stored {
		settled, err := s.queued.settled(ctx, sale, s.instantsOf(w, sale, run))
		if err != nil || !settled {
			run.queued[w.SaleID] = true
			return err
		}
		absent = unknownOrder()
	}
	step := pipeline.Uninterrupted(ctx)
	record, err := s.store.DecideWaitingPayment(step, w.ID, sale, absent)
	if err != nil || record.Payment.Outcome == "" {
		return err
	}
	s.report(step, &record.Payment, &record)
	return nil
}
