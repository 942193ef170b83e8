package db

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/idempotency"
)

// changeTries bounds how often a change is tried again because another operator changed the sale in between.
const changeTries = 5

// ChangeSale changes the definition of a sale, counts its version up and writes a line into the audit log, all in one
// statement. A change that changes nothing writes nothing. Errors: KindNotFound, KindInvalid (the result would break a
// rule), KindConflict (the sale is closed, which is final, or is being changed by others all the time).
func (s *Store) ChangeSale(
	ctx context.Context, id, actor string, change pipeline.SaleChange,
) (*pipeline.Sale, error) {
	if change.AddStock < 0 {
		return nil, pipeline.Errorf(pipeline.KindInvalid, "stock %d: it can be added, not taken away", change.AddStock)
	}
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	if idempotency.Done(ctx) {
		return s.Sale(ctx, id)
	}
	for range changeTries {
		sale, err := s.Sale(ctx, id)
		if err != nil {
			return nil, err
		}
		wanted, err := changed(sale, change)
		if err != nil {
			return nil, err
		}
		if wanted == nil {
			return sale, nil
		}
		switch after, err := s.saveChange(ctx, actor, sale, wanted); {
		case err == nil:
			return after, nil
		case !errors.Is(err, pgx.ErrNoRows):
			return nil, err
		}
	}
	return nil, pipeline.Errorf(pipeline.KindConflict, "sale %s is being changed by others", id)
}

// changed returns the sale as it would be after a change, or nil if it would be the same.
func changed(sale *pipeline.Sale, change pipeline.SaleChange) (*pipeline.Sale, error) {
	if sale.State == pipeline.SaleClosed {
		return nil, pipeline.Errorf(pipeline.KindConflict, "sale %s is closed, which is final", sale.ID)
	}
	wanted := *sale
	wanted.Total += change.AddStock
	if change.OpensAt != nil {
		wanted.OpensAt = storedTime(*change.OpensAt)
	}
	if change.ClosesAt != nil {
		wanted.ClosesAt = storedTime(*change.ClosesAt)
	}
	if change.State != nil {
		wanted.State = *change.State
	}
	if err := errors.Join(validateState(wanted.State), wanted.Validate()); err != nil {
		return nil, err
	}
	same := wanted.Total == sale.Total && wanted.State == sale.State &&
		wanted.OpensAt.Equal(sale.OpensAt) && wanted.ClosesAt.Equal(sale.ClosesAt)
	if same {
		return nil, nil
	}
	return &wanted, nil
}

// storedTime is a time as Postgres keeps it, to the microsecond.
func storedTime(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// saveChange writes a change on condition that the definition has not changed since it was read; else pgx.ErrNoRows.
// The condition replaces a lock: the row's own lock, which every batch needs, is held for this one statement only.
func (s *Store) saveChange(
	ctx context.Context, actor string, before, wanted *pipeline.Sale,
) (*pipeline.Sale, error) {
	detail, err := changeDetail(before, wanted)
	if err != nil {
		return nil, err
	}
	after, err := queryOne(ctx, s, "change sale "+before.ID, scanSale, `
		with changed as (
			update sales
			set total = $3, opens_at = $4, closes_at = $5, state = $6, version = version + 1, updated_at = now()
			where id = $1 and version = $2
			returning `+saleColumns+`
		), logged as (
			insert into audit_log (actor, action, sale_id, detail) select $7, $8, id, $9::text::jsonb from changed
		)
		select * from changed`,
		before.ID, before.Version, wanted.Total, wanted.OpensAt, wanted.ClosesAt, wanted.State,
		actor, action(before, wanted), detail)
	return &after, err
}

// action names a change for the audit log.
func action(before, after *pipeline.Sale) string {
	restocked := before.Total != after.Total
	rescheduled := !before.OpensAt.Equal(after.OpensAt) || !before.ClosesAt.Equal(after.ClosesAt)
	switch {
	case before.State == after.State && restocked && !rescheduled:
		return "restock"
	case before.State == after.State && !restocked:
		return "reschedule"
	case before.State == after.State || restocked || rescheduled:
		return "change"
	}
	switch after.State {
	case pipeline.SaleActive:
		return "resume"
	case pipeline.SalePaused:
		return "pause"
	default:
		return "close"
	}
}

type saleDefinition struct {
	Total    int64              `json:"total"`
	OpensAt  time.Time          `json:"opens_at"`
	ClosesAt time.Time          `json:"closes_at"`
	State    pipeline.SaleState `json:"state"`
	Version  int64              `json:"version"`
}

// changeDetail is the definition before and after, as JSON for the audit log.
func changeDetail(before, after *pipeline.Sale) (string, error) {
	define := func(s *pipeline.Sale, version int64) saleDefinition {
		return saleDefinition{s.Total, s.OpensAt, s.ClosesAt, s.State, version}
	}
	detail, err := json.Marshal(map[string]saleDefinition{
		"before": define(before, before.Version), "after": define(after, before.Version+1),
	})
	return string(detail), err
}
