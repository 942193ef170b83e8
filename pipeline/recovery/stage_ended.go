package recovery

import (
	"context"

	"sluice/lua"
	"sluice/pipeline"
)

// stageEnded stages the slots of orders that have ended, so that their idempotency keys go on to answer with them: of
// each buyer as many as Redis keeps.
func (v *Verifier) stageEnded(ctx context.Context, at pipeline.SalePartition, into *slotStager) error {
	var userID, slots string
	count := 0
	err := v.Store.EachEndedOrder(ctx, at.SaleID, at.Partition, func(o pipeline.LedgerOrder) error {
		if o.UserID != userID {
			if err := takeEnded(ctx, into, userID, slots); err != nil {
				return err
			}
			userID, slots, count = o.UserID, "", 0
		}
		if count++; count > lua.MaxEndedSlots {
			return nil
		}
		if slots != "" {
			slots += lua.EndedSlotsSeparator
		}
		slots += slotOfOrder(&o).String()
		return nil
	})
	if err != nil {
		return err
	}
	return takeEnded(ctx, into, userID, slots)
}

func takeEnded(ctx context.Context, into *slotStager, userID, slots string) error {
	if slots == "" {
		return nil
	}
	return into.takeText(ctx, userID, slots)
}
