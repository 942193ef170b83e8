package payments

import (
	"context"
	"log/slog"

	"sluice/pipeline"
)

// RefundStore records refunds, each once, together with what they do to their payments and orders.
type RefundStore interface {
	RecordRefund(ctx context.Context, refund Refund) (RefundRecord, error)
	RefuseRefund(ctx context.Context, refund Refund, why Decision) (RefundRecord, error)
}

// Refunded records that money was paid back, and what that did. It is done when all that was paid is back; a refund of
// less is refused, unless it says that it is partial, and then the rest remains due. Reporting it again, under the same
// webhook id or with the same refund id, changes nothing.
//
// A report that breaks a rule is recorded too, as refused: it is about money that somebody moved. Errors:
// KindUnavailable, and then nothing was recorded, or the answer was lost: send it again.
func (s *Service) Refunded(ctx context.Context, r Refund) (RefundRecord, error) {
	if err := r.Validate(); err != nil {
		return s.RefuseRefund(ctx, r, Refusal(ReasonInvalid, "%s", err.Error()))
	}
	record, err := s.store.RecordRefund(ctx, r)
	if err != nil {
		return record, err
	}
	s.reportRefund(ctx, &record)
	return record, nil
}

// RefuseRefund records a refund that fits nothing. What no table could keep is left out of it.
func (s *Service) RefuseRefund(ctx context.Context, r Refund, why Decision) (RefundRecord, error) {
	record, err := s.store.RefuseRefund(ctx, r.Readable(), why)
	if err != nil {
		return record, err
	}
	s.reportRefund(ctx, &record)
	return record, nil
}

// reportRefund counts and logs what became of a refund, and publishes the change of its order.
func (s *Service) reportRefund(ctx context.Context, record *RefundRecord) {
	if record.Changed {
		s.notifier.PublishOrders(ctx, []pipeline.Order{record.Order})
	}
	r := &record.Refund
	outcome := r.Outcome
	if record.Replayed {
		outcome = Replayed
	}
	s.metrics.refunds.WithLabelValues(string(outcome)).Inc()
	if record.Replayed {
		return
	}
	level := slog.LevelInfo
	if outcome == Refused || outcome == PartiallyRefunded {
		level = slog.LevelWarn // somebody's money is concerned
	}
	s.log.Log(ctx, level, "refund", "refund", r.ID, "payment", r.Payment, "sale", record.Payment.SaleID,
		"order", record.Payment.OrderID, "outcome", outcome, "reason", r.Reason)
}
