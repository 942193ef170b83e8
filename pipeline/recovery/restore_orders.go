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
	var failed atomic.Pointer[error] // ends the reading
	var restored, refused atomic.Int64
	page := make([]pipeline.Event, 0, homePage)
	flush := func() {
		events := page
		page = make([]pipeline.Event, 0, homePage)
		writes.Go(func() error {
			n, bad, err := h.restorePage(ctx, events)
			restored.Add(n)
			refused.Add(bad)
			if err != nil {
				failed.Store(&err)
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
		return failed.Load() == nil && ctx.Err() == nil
	})
	flush()
	if failure := writes.Wait(); failure != nil {
		err = failure
	}
	h.report.Restored += restored.Load()
	h.report.Refused += refused.Load()
	if err == nil {
		err = ctx.Err()
	}
	return err
}

// restorePage stores those of some orders that have no row, and returns how many, and how many can't stand.
func (h *homecoming) restorePage(ctx context.Context, events []pipeline.Event) (restored, refused int64, err error) {
	unknown, err := h.withoutRow(ctx, h.at.SaleID, events)
	if err != nil || len(unknown) == 0 {
		return 0, 0, err
	}
	return h.store(ctx, unknown)
}

// store halves what Postgres refuses until the refused order is alone, as a worker does.
func (h *homecoming) store(ctx context.Context, events []pipeline.Event) (restored, refused int64, err error) {
	outcomes, err := h.Ledger.PersistHome(ctx, h.generation, events)
	switch {
	case pipeline.KindOf(err) == pipeline.KindData && len(events) == 1:
		return 0, 1, h.reject(ctx, &events[0], err.Error())
	case pipeline.KindOf(err) == pipeline.KindData:
		half := len(events) / 2
		restored, refused, err = h.store(ctx, events[:half])
		if err != nil {
			return restored, refused, err
		}
		n, bad, err := h.store(ctx, events[half:])
		return restored + n, refused + bad, err
	case err != nil:
		return 0, 0, err
	}
	for i, outcome := range outcomes {
		switch outcome {
		case pipeline.PersistInserted:
			restored++
		case pipeline.PersistRedelivered: // a slot came twice
		default:
			refused++
			if err := h.reject(ctx, &events[i], string(outcome)); err != nil {
				return restored, refused, err
			}
		}
	}
	return restored, refused, nil
}
