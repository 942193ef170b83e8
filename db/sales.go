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

// maxSales is the most sales that one call of Sales returns: a page of some 300 KB.
const maxSales = 1000

const saleColumns = `id, title, total, sold, max_quantity, opens_at, closes_at, payment_window, state, partitions,
	version, loaded_at, created_at, updated_at, coalesce(unit_price, 0) as unit_price, coalesce(currency, '') as currency,
	waitlist, note, earlier_prices, coalesce(reduce_to, 0) as reduce_to, limit_group, group_limit,
	retired_at, orders_dropped_at, entry_ticket, entry_spread`

// defaultActor is the actor in the audit log where the caller names none.
const defaultActor = "sluice"

// CreateSale stores a new sale, writes a line into the audit log, and fills in what the store decides: Sold, Version,
// LoadedAt, CreatedAt, UpdatedAt, and State if it is empty. Errors: KindInvalid for a sale that breaks a rule,
// KindConflict if the id exists.
func (s *Store) CreateSale(ctx context.Context, sale *pipeline.Sale) error {
	created := *sale
	if created.State == "" {
		created.State = pipeline.SaleActive
	}
	if err := validateNewSale(&created); err != nil {
		return err
	}
	if idempotency.Done(ctx) {
		stored, err := s.Sale(ctx, sale.ID)
		if err == nil {
			*sale = *stored
		}
		return err
	}
	if err := s.joinLimitGroup(ctx, &created); err != nil {
		return err
	}
	detail, err := creationDetail(&created)
	if err != nil {
		return err
	}
	actor := created.CreatedBy
	if actor == "" {
		actor = defaultActor
	}
	created, err = queryOne(ctx, s, "create sale "+sale.ID, scanSale, `
		with created as (
			insert into sales (id, title, total, max_quantity, opens_at, closes_at, payment_window, state, partitions,
				unit_price, currency, waitlist, note, limit_group, group_limit, entry_ticket, entry_spread)
			values ($1, $2, $3, $4, $5, $6, $7, $8, $9, nullif($12::bigint, 0), nullif($13, ''), $14, $15, $16, $17, $18, $19)
			returning `+saleColumns+`
		), logged as (
			insert into audit_log (actor, action, sale_id, detail) select $10, 'create', id, $11::text::jsonb from created
		)
		select * from created`,
		created.ID, created.Title, created.Total, created.MaxQuantity, created.OpensAt, created.ClosesAt,
		created.PaymentWindow, created.State, smallints(created.Partitions), actor, detail,
		created.UnitPrice, created.Currency, created.Waitlist, created.Note, created.LimitGroup, created.GroupLimit,
		created.EntryTicket, created.EntrySpread)
	if breaks(err, "sales_pkey") {
		return pipeline.Wrap(pipeline.KindConflict, err, "sale "+sale.ID+" exists")
	}
	if err != nil {
		return err
	}
	*sale = created
	return nil
}

// creationDetail is a new sale, as JSON for the audit log.
func creationDetail(s *pipeline.Sale) (string, error) {
	detail, err := json.Marshal(struct {
		saleDefinition
		PaymentMS  int64  `json:"payment_window_ms"`
		Partitions int    `json:"partitions"`
		LimitGroup string `json:"limit_group,omitempty"`
		GroupLimit int    `json:"group_limit,omitempty"`
	}{define(s, 1), s.PaymentWindow.Milliseconds(), len(s.Partitions), s.LimitGroup, s.GroupLimit})
	return string(detail), err
}

func validateNewSale(sale *pipeline.Sale) error {
	if err := sale.Validate(); err != nil {
		return err
	}
	if n := len(sale.Partitions); n < 1 || n > pipeline.MaxPartitions {
		return pipeline.Errorf(pipeline.KindInvalid, "sale on %d partitions: use 1 to %d", n, pipeline.MaxPartitions)
	}
	for _, p := range sale.Partitions {
		if p < 0 || p >= pipeline.MaxPartitions {
			return pipeline.Errorf(pipeline.KindInvalid, "partition %d: use 0 to %d", p, pipeline.MaxPartitions-1)
		}
	}
	return validateState(sale.State)
}

func validateState(state pipeline.SaleState) error {
	switch state {
	case pipeline.SaleActive, pipeline.SalePaused, pipeline.SaleClosed:
		return nil
	default:
		return pipeline.Errorf(pipeline.KindInvalid, "sale state %q: use active, paused or closed", state)
	}
}

// Sale returns one sale, or a KindNotFound error.
func (s *Store) Sale(ctx context.Context, id string) (*pipeline.Sale, error) {
	if !pipeline.ValidSaleID(id) {
		return nil, unknownSale(id)
	}
	sale, err := queryOne(ctx, s, "sale "+id, scanSale, `select `+saleColumns+` from sales where id = $1`, id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = unknownSale(id)
	}
	if err != nil {
		return nil, err
	}
	return &sale, nil
}

// unknownSale leaves an invalid id out of the message: it may be any text that a client sent.
func unknownSale(id string) error {
	if !pipeline.ValidSaleID(id) {
		return pipeline.Errorf(pipeline.KindNotFound, "no such sale")
	}
	return pipeline.Errorf(pipeline.KindNotFound, "no sale %s", id)
}

// Sales returns sales in the order of their ids, at most maxSales.
func (s *Store) Sales(ctx context.Context, filter pipeline.SalesFilter) ([]*pipeline.Sale, error) {
	if filter.Limit <= 0 || filter.Limit > maxSales {
		filter.Limit = maxSales
	}
	scan := func(row pgx.CollectableRow) (*pipeline.Sale, error) {
		sale, err := scanSale(row)
		return &sale, err
	}
	// The primary key serves order and paging. updated_at has no index: sales are few.
	return queryAll(ctx, s, "sales", scan, `
		select `+saleColumns+` from sales
		where id > $1 and ($2::timestamptz is null or updated_at >= $2)
		order by id limit $3`,
		filter.After, optionalTime(filter.UpdatedSince), filter.Limit)
}

// BeginPublish says that a sale is about to be put into Redis, where it never was, or changed there. It returns once
// the standbys have the definition that was read before: Redis must not sell what a fail-over of Postgres would forget.
// The partitions are those on which it must have been before: something of it is stored.
func (s *Store) BeginPublish(ctx context.Context, id string) ([]pipeline.Partition, error) {
	_, err := s.exec(ctx, "mark sale", `
		with marked as (
			update sales set loading_at = now() where id = $1 and loading_at is null and loaded_at is null
		)
		`+confirmQuery, id)
	if err != nil {
		return nil, err
	}
	return queryAll(ctx, s, "sale "+id, pgx.RowTo[pipeline.Partition], `
		select partition from watermarks where sale_id = $1`, id)
}

// MarkLoaded records that a sale was put into Redis. Only the first call changes anything. KindNotFound: no such sale.
func (s *Store) MarkLoaded(ctx context.Context, id string) error {
	exists, err := queryValue[bool](ctx, s, "mark sale "+id+" loaded", `
		with marked as (
			update sales set loaded_at = now(), updated_at = now() where id = $1 and loaded_at is null
		)
		select exists (select from sales where id = $1)`, id)
	if err == nil && !exists {
		return unknownSale(id)
	}
	return err
}

func scanSale(row pgx.CollectableRow) (pipeline.Sale, error) {
	var sale pipeline.Sale
	var partitions []int16
	var loaded, retired, dropped *time.Time
	err := row.Scan(&sale.ID, &sale.Title, &sale.Total, &sale.Sold, &sale.MaxQuantity, &sale.OpensAt, &sale.ClosesAt,
		&sale.PaymentWindow, &sale.State, &partitions, &sale.Version, &loaded, &sale.CreatedAt, &sale.UpdatedAt,
		&sale.UnitPrice, &sale.Currency, &sale.Waitlist, &sale.Note, &sale.EarlierPrices, &sale.ReduceTo, &sale.LimitGroup,
		&sale.GroupLimit, &retired, &dropped, &sale.EntryTicket, &sale.EntrySpread)
	sale.Partitions = partitionsOf(partitions)
	sale.OpensAt, sale.ClosesAt = sale.OpensAt.UTC(), sale.ClosesAt.UTC()
	sale.CreatedAt, sale.UpdatedAt = sale.CreatedAt.UTC(), sale.UpdatedAt.UTC()
	sale.LoadedAt, sale.RetiredAt, sale.OrdersDroppedAt = timeOrZero(loaded), timeOrZero(retired), timeOrZero(dropped)
	if len(sale.EarlierPrices) == 0 {
		sale.EarlierPrices = nil
	}
	return sale, err
}

func smallints(partitions []pipeline.Partition) []int16 {
	list := make([]int16, len(partitions))
	for i, p := range partitions {
		list[i] = int16(p) // 0..63, validated
	}
	return list
}

// partitionsOf is the inverse of smallints.
func partitionsOf(smallints []int16) []pipeline.Partition {
	list := make([]pipeline.Partition, len(smallints))
	for i, p := range smallints {
		list[i] = pipeline.Partition(p)
	}
	return list
}
