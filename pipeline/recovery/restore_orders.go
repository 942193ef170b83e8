package recovery

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/redisstore"
)

// restore stores the orders of slots that have no row. It reads page after page while some are written, so that a sale
// of any size takes the memory of a few pages.
func (h *homecoming) restore(ctx context.Context) error {
	var writes errgroup.Group
	writes.SetLimit(homeWrites)
	var failed atomic.Bool // ends the reading
	page := make([]pipeline.Event, 0, homePage)
	flush := func() {
		events := page
		page = make([]pipeline.Event, 0, homePage)
		writes.Go(func() error {
			err := h.restorePage(ctx, events)
			if err != nil {
				failed.Store(true)
			}
			return err
		})
	}
	err := redisstore.EachSlot(ctx, h.Redis, h.Keys, h.at, func(userID string, slot lua.Slot, ok bool) bool {
		if e, valid := acceptOf(h.at, userID, slot); ok && valid {
			if page = append(page, e); len(page) == homePage {
				flush()
			}
		}
		return !failed.Load() && ctx.Err() == nil
	})
	flush()
	if failure := writes.Wait(); failure != nil {
		return failure
	}
	if err != nil {
		return err
	}
	return ctx.Err()
}

// restorePage stores those of some orders that have no row.
func (h *homecoming) restorePage(ctx context.Context, events []pipeline.Event) error {
	unknown, err := h.withoutRow(ctx, h.at.SaleID, events)
	if err != nil || len(unknown) == 0 {
		return err
	}
	return h.store(ctx, unknown)
}

// store halves what Postgres refuses until the refused order is alone, as a worker does. One that can't stand gets a
// dead letter.
func (h *homecoming) store(ctx context.Context, events []pipeline.Event) error {
	outcomes, err := h.Ledger.PersistHome(ctx, h.generation, events)
	switch {
	case pipeline.KindOf(err) == pipeline.KindData && len(events) == 1:
		return h.reject(ctx, &events[0], err.Error())
	case pipeline.KindOf(err) == pipeline.KindData:
		half := len(events) / 2
		if err := h.store(ctx, events[:half]); err != nil {
			return err
		}
		return h.store(ctx, events[half:])
	case err != nil:
		return err
	}
	for i, outcome := range outcomes {
		if outcome == pipeline.PersistInserted || outcome == pipeline.PersistRedelivered { // a slot may come twice
			continue
		}
		if err := h.reject(ctx, &events[i], string(outcome)); err != nil {
			return err
		}
	}
	return nil
}
