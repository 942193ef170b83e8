package db

import (
	"context"
	"errors"
	"iter"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

// ledgerChunk is how many in-flight orders are looked up by one query.
const ledgerChunk = 5000

// liveQuery reads a large part of what there is: the planner takes the table or an index, whichever is shorter.
const liveQuery = `
select id, user_id, quantity, partition, sequence, status, coalesce(number, 0), accepted_at, key_hash
from orders
where sale_id = $1 and status in ('awaiting_payment', 'confirmed', 'paid')`

// unappliedQuery relies on releases_unapplied_idx.
const unappliedQuery = `
select order_id, user_id, case when withdrawn then 0 else quantity end, partition, sequence, '', 0, created_at, ''
from releases
where sale_id = $1 and applied_at is null`

// knownQuery relies on orders_pkey: one lookup for each id.
const knownQuery = `
select o.id, o.user_id, o.quantity, o.partition, o.sequence, o.status, coalesce(o.number, 0), o.accepted_at,
	o.key_hash
from unnest($2::text[]) as i (id)
cross join lateral (select * from orders where sale_id = $1 and id = i.id::uuid limit 1) o`

// Ledger reads all that Postgres has of a sale, at one instant: everything comes from one snapshot. inFlight are the
// ids of orders that the caller saw in the stream, or nil: those that have a row, in any status, go to known. Each live
// order and each release that is not applied goes to its callback as it arrives, so that ten million of them need no
// memory here; a nil callback leaves them out. No lock is taken, and writers do not wait.
//
// The ids are asked for while the snapshot is open. An id may come twice, and known may be told of it twice then.
//
// Errors: KindNotFound for an unknown sale; an error of a callback ends the reading and is returned as it is.
func (s *Store) Ledger(
	ctx context.Context, saleID string, inFlight iter.Seq[string],
	known, live, unapplied func(pipeline.LedgerOrder) error,
) (pipeline.Ledger, error) {
	if !pipeline.ValidSaleID(saleID) {
		return pipeline.Ledger{}, unknownSale(saleID)
	}
	var ledger pipeline.Ledger
	err := s.snapshot(ctx, "ledger of sale "+saleID, func(ctx context.Context, tx pgx.Tx) error {
		r := ledgerReader{tx: tx, saleID: saleID, ledger: &ledger}
		if err := r.numbers(ctx); err != nil {
			return err
		}
		if err := r.known(ctx, inFlight, known); err != nil {
			return err
		}
		if err := r.stream(ctx, live, liveQuery); err != nil {
			return err
		}
		return r.stream(ctx, unapplied, unappliedQuery)
	})
	if err != nil {
		return pipeline.Ledger{}, err
	}
	return ledger, nil
}

// ledgerReader reads the parts of one ledger within one transaction.
type ledgerReader struct {
	tx     pgx.Tx
	saleID string
	ledger *pipeline.Ledger
}

// numbers reads all but the orders themselves.
func (r *ledgerReader) numbers(ctx context.Context) error {
	for _, part := range []func(context.Context) error{r.sale, r.statuses, r.watermarks, r.applied, r.incidents} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *ledgerReader) sale(ctx context.Context) error {
	err := r.tx.QueryRow(ctx, `select total, sold, version from sales where id = $1`, r.saleID).
		Scan(&r.ledger.Total, &r.ledger.Sold, &r.ledger.Version)
	if errors.Is(err, pgx.ErrNoRows) {
		return unknownSale(r.saleID)
	}
	return err
}

func (r *ledgerReader) statuses(ctx context.Context) error {
	rows, err := r.tx.Query(ctx, `
		select status, partition, count(*), sum(quantity) from orders
		where sale_id = $1 group by status, partition
		union all
		select status, partition, sum(orders)::bigint, sum(units)::bigint from dropped_orders
		where sale_id = $1 group by status, partition`, r.saleID)
	if err != nil {
		return err
	}
	r.ledger.ByStatus = map[pipeline.OrderStatus]int64{}
	r.ledger.ByPartition = map[pipeline.Partition]int64{}
	var status pipeline.OrderStatus
	var partition pipeline.Partition
	var count, units int64
	_, err = pgx.ForEachRow(rows, []any{&status, &partition, &count, &units}, func() error {
		r.ledger.ByStatus[status] += count
		r.ledger.ByPartition[partition] += count
		r.ledger.Orders += count
		if status.Live() {
			r.ledger.LiveUnits += units
		}
		return nil
	})
	return err
}

func (r *ledgerReader) watermarks(ctx context.Context) (err error) {
	r.ledger.Watermarks, err = r.perPartition(ctx, `select partition, seq from watermarks where sale_id = $1`)
	if err != nil {
		return err
	}
	r.ledger.LostOn, err = r.perPartition(ctx, `select partition, lost from watermarks where sale_id = $1 and lost > 0`)
	if err != nil {
		return err
	}
	r.ledger.Withdrawn, err = r.perPartition(ctx, `
		select partition, withdrawn from watermarks where sale_id = $1 and withdrawn > 0`)
	return err
}

func (r *ledgerReader) applied(ctx context.Context) (err error) {
	r.ledger.Applied, err = r.perPartition(ctx, `
		select partition, count(*) from releases where sale_id = $1 and applied_at is not null group by partition`)
	return err
}

// incidents relies on watermarks_pkey, audit_log_sale_idx and dead_letters_unresolved_idx.
func (r *ledgerReader) incidents(ctx context.Context) error {
	return r.tx.QueryRow(ctx, `
		select coalesce((select sum(lost) from watermarks where sale_id = $1), 0)::bigint,
			(select count(*) from audit_log where sale_id = $1 and action in ('rebuild', 'repair')),
			(select count(*) from dead_letters where sale_id = $1 and resolved_at is null)`, r.saleID).
		Scan(&r.ledger.Lost, &r.ledger.Rebuilds, &r.ledger.Letters)
}

func (r *ledgerReader) perPartition(ctx context.Context, query string) (map[pipeline.Partition]int64, error) {
	rows, err := r.tx.Query(ctx, query, r.saleID)
	if err != nil {
		return nil, err
	}
	values := map[pipeline.Partition]int64{}
	var partition pipeline.Partition
	var value int64
	_, err = pgx.ForEachRow(rows, []any{&partition, &value}, func() error {
		values[partition] = value
		return nil
	})
	return values, err
}

// known looks up the in-flight orders, some at a time.
func (r *ledgerReader) known(
	ctx context.Context, inFlight iter.Seq[string], each func(pipeline.LedgerOrder) error,
) error {
	if inFlight == nil || each == nil {
		return nil
	}
	chunk := make([]string, 0, ledgerChunk)
	for id := range inFlight {
		if chunk = append(chunk, id); len(chunk) < ledgerChunk {
			continue
		}
		if err := r.stream(ctx, each, knownQuery, uuidsOf(chunk)); err != nil {
			return err
		}
		chunk = chunk[:0]
	}
	if len(chunk) == 0 {
		return nil
	}
	return r.stream(ctx, each, knownQuery, uuidsOf(chunk))
}

// stream passes the rows of a query to a callback one by one.
func (r *ledgerReader) stream(
	ctx context.Context, each func(pipeline.LedgerOrder) error, query string, args ...any,
) error {
	if each == nil {
		return nil
	}
	var order pipeline.LedgerOrder
	var id uuid.UUID
	into := []any{
		&id, &order.UserID, &order.Quantity, &order.Partition, &order.Sequence, &order.Status,
		&order.Number, &order.AcceptedAt, &order.KeyHash,
	}
	return stream(ctx, r.tx, into, func() error {
		order.OrderID, order.AcceptedAt = id.String(), order.AcceptedAt.UTC()
		return each(order)
	}, query, append([]any{pgx.QueryExecModeCacheDescribe, r.saleID}, args...)...)
}

// endedQuery reads orders that have ended; it sorts them.
const endedQuery = `
select id, user_id, quantity, partition, sequence, status, number, accepted_at, key_hash
from orders
where sale_id = $1 and partition = $2 and closed_at is not null and key_hash <> '' and number is not null
order by user_id, accepted_at desc`

// EachEndedOrder calls each for every order of a sale on a partition that has ended and had an Idempotency-Key: buyer
// by buyer, the latest first. An error of the callback ends it and is returned as it is.
func (s *Store) EachEndedOrder(
	ctx context.Context, saleID string, p pipeline.Partition, each func(pipeline.LedgerOrder) error,
) error {
	return s.snapshot(ctx, "ended orders of sale "+saleID, func(ctx context.Context, tx pgx.Tx) error {
		r := ledgerReader{tx: tx, saleID: saleID}
		return r.stream(ctx, each, endedQuery, p)
	})
}
