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
	// waitingSlack is how far the clocks of Postgres and Redis may differ.
	waitingSlack = time.Minute
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
	queued := map[string]bool{} // sales whose streams are not known to be settled
	for after := int64(0); ctx.Err() == nil; {
		page, err := s.store.WaitingPayments(ctx, after, waitingPage)
		if err != nil {
			return err
		}
		for i := range page {
			if ctx.Err() != nil {
				return errors.Join(append(errs, ctx.Err())...)
			}
			if err := s.decideWaiting(ctx, &page[i], queued); err != nil {
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

func (s *Service) decideWaiting(ctx context.Context, w *WaitingPayment, queued map[string]bool) error {
	if !w.Stored && queued[w.SaleID] {
		return nil
	}
	sale, err := s.sales.Sale(ctx, w.SaleID)
	if err != nil {
		return err
	}
	var absent Decision // goes on waiting
	if !w.Stored {
		settled, err := s.queued.settled(ctx, sale, instantsAt(sale, w.ReceivedAt.Add(waitingSlack)))
		if err != nil || !settled {
			queued[w.SaleID] = true
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
