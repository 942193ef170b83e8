package audit

import (
	"context"

	"sluice/pipeline"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/retry"
)

// releases finds out which releases that Postgres has not noted as applied are still owed: those whose slot names the
// order. Once the slot is gone the release was applied, and only Postgres does not know yet.
//
// Redis is asked for these slots once Postgres has named them. That is as good as before: a slot that was there when
// the look began goes away by a release only, and then the look is not exact.
type releases struct {
	look  *look
	books *books
	page  []pipeline.LedgerOrder
}

func (r *releases) take(ctx context.Context, o pipeline.LedgerOrder) error {
	if r.page = append(r.page, o); len(r.page) < redisstore.PageSize {
		return nil
	}
	return r.flush(ctx)
}

// flush looks up the slots of a page.
func (r *releases) flush(ctx context.Context) error {
	of := map[pipeline.Partition][]pipeline.LedgerOrder{}
	for _, o := range r.page {
		of[o.Partition] = append(of[o.Partition], o)
	}
	r.page = r.page[:0]
	for p, orders := range of {
		if err := r.owed(ctx, p, orders); err != nil {
			return err
		}
	}
	return nil
}

func (r *releases) owed(ctx context.Context, p pipeline.Partition, orders []pipeline.LedgerOrder) error {
	users := make([]string, len(orders))
	for i := range orders {
		users[i] = orders[i].UserID
	}
	at := pipeline.SalePartition{SaleID: r.look.sale.ID, Partition: p}
	call, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	slots, err := redisstore.ReadSlots(call, r.look.rdb, r.look.keys, at, users)
	if err != nil {
		return err
	}
	for i := range orders {
		if slots[i].OrderID != orders[i].OrderID {
			continue
		}
		if err := r.books.add(ctx, r.look.entryOf(releaseEntry, &orders[i])); err != nil {
			return err
		}
	}
	return nil
}
