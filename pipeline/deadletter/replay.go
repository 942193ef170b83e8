package deadletter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/idempotency"
)

// Replay makes an order of a dead letter, with the repaired fields in the place of the stored ones, and returns the
// letter as it is afterwards. The order is admitted like every other: it takes stock and a slot that are free now. The
// exception is a letter whose accept still has both, because its entry was too broken to give them back: then that very
// order is persisted, as its buyer's receipt says.
//
// It may die anywhere and be repeated: the order's id is stored before it is asked for, so that no two orders come of
// it.
//
// Errors: KindNotFound (no such letter), KindInvalid (which field is wrong), KindConflict (it is resolved, or the order
// can't be taken now, and why), KindNotLoaded, KindUnavailable (repeat it: the order may stand).
func (r *Replayer) Replay(ctx context.Context, id int64, actor string, repairs map[string]string) (Letter, error) {
	if err := errors.Join(pipeline.ValidateActor(actor), ValidateRepairs(repairs)); err != nil {
		return Letter{}, err
	}
	letter, err := r.store.Letter(ctx, id)
	if err != nil {
		return Letter{}, err
	}
	if err := resolvedError(&letter); err != nil {
		if idempotency.Done(ctx) {
			return letter, nil // by an earlier try of the same request
		}
		return letter, err
	}
	as, err := readReplay(&letter, repairs)
	if err != nil {
		return letter, err
	}
	sale, err := r.store.Sale(ctx, as.SaleID)
	if pipeline.KindOf(err) == pipeline.KindNotFound {
		return letter, pipeline.Errorf(
			pipeline.KindInvalid, "dead letter %d: field s: there is no sale %s; give the field another value", id, as.SaleID,
		)
	}
	if err != nil {
		return letter, err
	}
	if err := r.giveBack(ctx, &letter); err != nil {
		return letter, err
	}
	orderID, err := r.order(ctx, &letter, sale, as)
	if err != nil {
		return letter, err
	}
	return r.resolve(ctx, letter, LetterResolution{
		Resolution: Replayed, Actor: actor, SaleID: sale.ID, OrderID: orderID, Repairs: repairs,
	})
}

// Discard notes that no order shall be made of a dead letter. The units and the slot of the letter's order were given
// back when it was buried, or will be. Errors: KindNotFound, KindInvalid, KindConflict (it is resolved, or a replay's
// outcome is not known).
func (r *Replayer) Discard(ctx context.Context, id int64, actor, note string) (Letter, error) {
	if err := pipeline.ValidateActor(actor); err != nil {
		return Letter{}, err
	}
	if len(note) > pipeline.MaxNoteBytes || !utf8.ValidString(note) || strings.ContainsRune(note, 0) {
		return Letter{}, pipeline.Errorf(pipeline.KindInvalid, "note: use at most %d bytes of UTF-8", pipeline.MaxNoteBytes)
	}
	letter, err := r.store.Letter(ctx, id)
	if err != nil {
		return Letter{}, err
	}
	if err := resolvedError(&letter); err != nil {
		if idempotency.Done(ctx) {
			return letter, nil // by an earlier try of the same request
		}
		return letter, err
	}
	how := LetterResolution{Resolution: Discarded, Actor: actor, Note: note}
	if pipeline.ValidSaleID(letter.SaleID) {
		how.SaleID = letter.SaleID
	}
	return r.resolve(ctx, letter, how)
}

func (r *Replayer) resolve(ctx context.Context, letter Letter, how LetterResolution) (Letter, error) {
	at, err := r.store.ResolveLetter(ctx, letter.ID, how)
	switch {
	case pipeline.KindOf(err) == pipeline.KindConflict: // somebody else was faster
		return letter, r.whyNot(ctx, letter.ID, err)
	case err != nil && how.Resolution == Replayed:
		return letter, pipeline.Wrap(pipeline.KindUnavailable, err, fmt.Sprintf(
			"order %s stands, but Postgres did not confirm that dead letter %d is replayed; repeat it", how.OrderID, letter.ID))
	case err != nil:
		return letter, err
	}
	letter.ResolvedAt, letter.Resolution, letter.Note = at, how.Resolution, how.Note
	if how.OrderID != "" {
		letter.ReplayID = how.OrderID
	}
	r.log.Info("dead letter resolved", "letter", letter.ID, "resolution", how.Resolution, "actor", how.Actor,
		"sale", how.SaleID, "order", how.OrderID)
	return letter, nil
}

// giveBack applies the release of the letter's own order, if there is one left: until then its units and its buyer's
// slot are taken.
func (r *Replayer) giveBack(ctx context.Context, letter *Letter) error {
	due, err := r.store.OrderReleases(ctx, letter.SaleID, letter.OrderID)
	if err != nil || len(due) == 0 {
		return err
	}
	_, err = r.releaser.ApplyReleases(ctx, due)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, lua.ErrNotLoaded), errors.Is(err, lua.ErrUntrusted):
		return pipeline.Wrap(
			pipeline.KindNotLoaded,
			err,
			fmt.Sprintf("Redis does not hold sale %s, so that what order %s held can't be given back yet",
				letter.SaleID, letter.OrderID),
		)
	default:
		return pipeline.Wrap(
			pipeline.KindUnavailable,
			err,
			fmt.Sprintf("what order %s held could not be given back, so that its buyer's place is still taken; repeat it",
				letter.OrderID),
		)
	}
}
