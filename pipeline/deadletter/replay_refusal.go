package deadletter

import (
	"context"
	"fmt"

	"sluice/lua"
	"sluice/pipeline"
)

// whyNot says how a letter was resolved meanwhile.
func (r *Replayer) whyNot(ctx context.Context, id int64, conflict error) error {
	letter, err := r.store.Letter(ctx, id)
	if err != nil || resolvedError(&letter) == nil {
		return conflict
	}
	return resolvedError(&letter)
}

// noteRefusal notes that a try made no order, if that is what its error says. Where it can't, the next try finds out.
func (r *Replayer) noteRefusal(ctx context.Context, letter *Letter, err error) {
	if kind := pipeline.KindOf(err); kind != pipeline.KindConflict && kind != pipeline.KindNotLoaded {
		return
	}
	if err := r.store.EndReplay(ctx, letter.ID); err != nil {
		r.log.Warn("the outcome of a replay was not noted", "letter", letter.ID, "error", err)
	}
}

// refusedReplay says in plain words why Redis takes no such order now.
func refusedReplay(letter *Letter, sale *pipeline.Sale, as ReplayAs, outcome lua.AdmitOutcome) error {
	switch outcome.Code {
	case lua.AdmitUntrusted:
		return pipeline.Errorf(
			pipeline.KindNotLoaded, "dead letter %d can't be replayed now: Redis is being verified after a restart; repeat it",
			letter.ID,
		)
	case lua.AdmitBacklogFull:
		return pipeline.Errorf(
			pipeline.KindOverloaded, "dead letter %d can't be replayed now: too many orders wait for the workers; repeat it",
			letter.ID,
		)
	case lua.AdmitNotLoaded:
		return pipeline.Errorf(
			pipeline.KindNotLoaded, "dead letter %d can't be replayed: Redis does not hold sale %s", letter.ID, sale.ID,
		)
	case lua.AdmitSoldOut:
		return cantBeTaken(
			letter,
			fmt.Sprintf("sale %s has fewer than %d units left; restock it, or wait until some come back", sale.ID, as.Quantity),
		)
	case lua.AdmitAlreadyOrdered, lua.AdmitReplayed, lua.AdmitKeyReused:
		return cantBeTaken(
			letter, fmt.Sprintf("buyer %s has order %s in sale %s already", as.UserID, outcome.Slot.OrderID, sale.ID),
		)
	case lua.AdmitNotOpen:
		return cantBeTaken(
			letter, fmt.Sprintf("sale %s is not open yet; it opens at %s", sale.ID, pipeline.FormatTime(sale.OpensAt)),
		)
	case lua.AdmitClosed:
		return cantBeTaken(letter, fmt.Sprintf("sale %s is closed", sale.ID))
	case lua.AdmitPaused:
		return cantBeTaken(letter, fmt.Sprintf("sale %s is paused; resume it first", sale.ID))
	case lua.AdmitOverGroupLimit:
		return cantBeTaken(letter, fmt.Sprintf("buyer %s has %d units in the other sales of limit group %s, of %d in all",
			as.UserID, outcome.Held, sale.LimitGroup, sale.GroupLimit))
	case lua.AdmitOverLimit:
		return cantBeTaken(
			letter,
			fmt.Sprintf(
				"%d units are more than the %d that sale %s allows in one order", as.Quantity, sale.MaxQuantity, sale.ID,
			),
		)
	default:
		return pipeline.Errorf(
			pipeline.KindUnavailable, "dead letter %d can't be replayed now: Redis answers %s", letter.ID, outcome.Code,
		)
	}
}

func cantBeTaken(letter *Letter, why string) error {
	return pipeline.Errorf(pipeline.KindConflict, "dead letter %d can't be replayed now: %s", letter.ID, why)
}

// resolvedError says that a letter is resolved, since when and how; nil while it is not.
func resolvedError(l *Letter) error {
	switch l.Resolution {
	case "":
		return nil
	case Replayed:
		return pipeline.Errorf(pipeline.KindConflict, "dead letter %d was replayed at %s as order %s; nothing is left to do",
			l.ID, pipeline.FormatTime(l.ResolvedAt), l.ReplayID)
	default:
		return pipeline.Errorf(
			pipeline.KindConflict, "dead letter %d was %s at %s; nothing is left to do", l.ID, l.Resolution,
			pipeline.FormatTime(l.ResolvedAt),
		)
	}
}
