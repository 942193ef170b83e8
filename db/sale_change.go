package db

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/idempotency"
	"sluice/pipeline/sales"
)

// changeTries bounds how often a change is tried again because another operator changed the sale in between.
const changeTries = 5

// ChangeSale changes the definition of a sale, counts its version up and writes a line into the audit log, all in one
// statement. A change that changes nothing writes nothing. Errors: KindNotFound, KindInvalid (the result would break a
// rule), KindConflict (the sale is closed, which is final but for its note; it is at another version than the change is
// for; or it is being changed by others all the time).
func (s *Store) ChangeSale(
	ctx context.Context, id, actor string, change pipeline.SaleChange,
) (*pipeline.Sale, error) {
	if change.AddStock < 0 {
		return nil, pipeline.Errorf(pipeline.KindInvalid, "stock %d: it can be added, and is taken away by a reduction",
			change.AddStock)
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
	return nil, idempotency.ForNow(
		pipeline.Errorf(pipeline.KindConflict, "sale %s is being changed by others; try again", id))
}

// changed returns the sale as it would be after a change, or nil if it would be the same.
func changed(sale *pipeline.Sale, change pipeline.SaleChange) (*pipeline.Sale, error) {
	noteOnly := pipeline.SaleChange{Note: change.Note, IfVersion: change.IfVersion}
	if sale.State == pipeline.SaleClosed && (change != noteOnly || change.Note == nil) {
		return nil, pipeline.Errorf(pipeline.KindConflict, "sale %s is closed, which is final", sale.ID)
	}
	if !sale.OrdersDroppedAt.IsZero() && change != noteOnly {
		return nil, pipeline.Errorf(pipeline.KindConflict, "the orders of sale %s are not kept any more, so it can't be "+
			"changed or sold again; create a new sale", sale.ID)
	}
	wanted := *sale
	if err := edit(&wanted, change); err != nil {
		return nil, err
	}
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
	same := wanted.Total == sale.Total && wanted.State == sale.State && !edited(sale, &wanted) &&
		wanted.OpensAt.Equal(sale.OpensAt) && wanted.ClosesAt.Equal(sale.ClosesAt)
	switch {
	case same:
		return nil, nil
	case change.IfVersion != 0 && change.IfVersion != sale.Version:
		return nil, pipeline.Errorf(pipeline.KindConflict, "sale %s is at version %d, and the change is for version %d; "+
			"look at it again", sale.ID, sale.Version, change.IfVersion)
	case sale.ReduceTo > 0:
		return nil, idempotency.ForNow(pipeline.Errorf(pipeline.KindConflict,
			"the stock of sale %s is being reduced to %d; try again once a worker has done so", sale.ID, sale.ReduceTo))
	}
	return &wanted, nil
}

// edit applies what is not about a sale's window, state and units.
func edit(sale *pipeline.Sale, change pipeline.SaleChange) error {
	if change.Waitlist != nil && *change.Waitlist == 0 && sale.Waitlist > 0 {
		return pipeline.Errorf(pipeline.KindInvalid, "waitlist 0: buyers may be waiting; use at least 1")
	}
	if change.Waitlist != nil && sale.Waitlist == 0 && *change.Waitlist > 0 && len(sale.Partitions) > 1 {
		return pipeline.Errorf(pipeline.KindInvalid, "a sale on several partitions can't have a waitlist: nobody would see to "+
			"its order across them")
	}
	if change.UnitPrice != nil && *change.UnitPrice == 0 && sale.UnitPrice > 0 {
		return pipeline.Errorf(pipeline.KindInvalid, "unit price 0: a price can be changed, and not be taken away")
	}
	set(&sale.Title, change.Title)
	set(&sale.MaxQuantity, change.MaxQuantity)
	set(&sale.Waitlist, change.Waitlist)
	set(&sale.UnitPrice, change.UnitPrice)
	set(&sale.Currency, change.Currency)
	set(&sale.Note, change.Note)
	set(&sale.EntryTicket, change.EntryTicket)
	set(&sale.EntrySpread, change.EntrySpread)
	return nil
}

func set[T any](field, to *T) {
	if to != nil {
		*field = *to
	}
}

// edited reports whether two definitions of a sale differ in what edit changes.
func edited(a, b *pipeline.Sale) bool {
	return a.Title != b.Title || a.MaxQuantity != b.MaxQuantity || a.Waitlist != b.Waitlist ||
		a.UnitPrice != b.UnitPrice || a.Currency != b.Currency || a.Note != b.Note ||
		a.EntryTicket != b.EntryTicket || a.EntrySpread != b.EntrySpread
}

// storedTime is a time as Postgres keeps it, to the microsecond.
func storedTime(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// saveChange writes a change on condition that the definition has not changed since it was read; else pgx.ErrNoRows.
// The condition replaces a lock: the row's own lock, which every batch needs, is held for this one statement only. What
// depends on the time is computed once it is locked, before the update: Citus would have nothing of the kind in it.
// stays_over is true where the sale is over with its new window, too. Otherwise one that has left Redis comes back: the
// next look of a worker finds that Redis lacks it, and rebuilds it.
func (s *Store) saveChange(
	ctx context.Context, actor string, before, wanted *pipeline.Sale,
) (*pipeline.Sale, error) {
	detail, err := changeDetail(before, wanted)
	if err != nil {
		return nil, err
	}
	after, err := queryOne(ctx, s, "change sale "+before.ID, scanSale, `
		with locked as materialized (
			select payment_window, unit_price, currency, earlier_prices from sales where id = $1 for no key update
		), computed as materialized (
			select $5::timestamptz`+isLongPast+` as stays_over, `+earlierPrices+` as earlier_prices from locked s
		), changed as (
			update sales s
			set total = $3, opens_at = $4, closes_at = $5, state = $6, version = version + 1, updated_at = now(),
				title = $10, max_quantity = $11, waitlist = $12, note = $13, entry_ticket = $17, entry_spread = $18,
				max_quantity_ever = greatest(max_quantity_ever, max_quantity, $11),
				retired_at = case when c.stays_over then retired_at end, cleared_in = case when c.stays_over then cleared_in end,
				earlier_prices = c.earlier_prices, unit_price = nullif($14::bigint, 0), currency = nullif($15::text, '')
			from computed c
			where id = $1 and version = $2 and reduce_to is null and (orders_dropped_at is null
				or (total, opens_at, closes_at, state) = ($3::bigint, $4::timestamptz, $5::timestamptz, $6::text))
			returning s.*
		), logged as (
			insert into audit_log (actor, action, sale_id, detail) select $7, $8, id, $9::text::jsonb from changed
		)
		select `+saleColumns+` from changed`,
		before.ID, before.Version, wanted.Total, wanted.OpensAt, wanted.ClosesAt, wanted.State,
		actor, action(before, wanted), detail, wanted.Title, wanted.MaxQuantity, wanted.Waitlist, wanted.Note,
		wanted.UnitPrice, wanted.Currency, sales.PriceLead.Milliseconds(), wanted.EntryTicket, wanted.EntrySpread)
	return &after, err
}

// earlierPrices notes until when the price was asked that is replaced now: for a moment still, so that each api knows
// the new one before it is asked. Of two changes within that moment the later one comes into effect later.
const earlierPrices = `case
	when (coalesce(unit_price, 0), coalesce(currency, '')) = ($14::bigint, $15::text) then earlier_prices
	else earlier_prices || jsonb_build_array(jsonb_build_object(
		'until_ms', greatest((extract(epoch from clock_timestamp()) * 1000)::bigint + $16::bigint,
			(earlier_prices -> -1 ->> 'until_ms')::bigint + 1),
		'unit_price', coalesce(unit_price, 0), 'currency', coalesce(currency, ''))) end`

// action names a change for the audit log.
func action(before, after *pipeline.Sale) string {
	restocked := before.Total != after.Total
	rescheduled := !before.OpensAt.Equal(after.OpensAt) || !before.ClosesAt.Equal(after.ClosesAt)
	switch {
	case edited(before, after) && before.State == after.State && !restocked:
		return "edit"
	case edited(before, after):
		return "change"
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

	Title       string `json:"title"`
	MaxQuantity int    `json:"max_quantity"`
	UnitPrice   int64  `json:"unit_price,omitempty"` // minor units of currency
	Currency    string `json:"currency,omitempty"`
	Waitlist    int64  `json:"waitlist"`
	Note        string `json:"note,omitempty"`

	EntryTicket   bool  `json:"entry_ticket"`
	EntrySpreadMS int64 `json:"entry_spread_ms"`
}

func define(s *pipeline.Sale, version int64) saleDefinition {
	return saleDefinition{
		s.Total, s.OpensAt, s.ClosesAt, s.State, version, s.Title, s.MaxQuantity, s.UnitPrice, s.Currency, s.Waitlist, s.Note,
		s.EntryTicket, s.EntrySpread.Milliseconds(),
	}
}

// changeDetail is the definition before and after, as JSON for the audit log.
func changeDetail(before, after *pipeline.Sale) (string, error) {
	detail, err := json.Marshal(map[string]saleDefinition{
		"before": define(before, before.Version), "after": define(after, before.Version+1),
	})
	return string(detail), err
}
