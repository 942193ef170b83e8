package db

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

const (
	// ledgerTimeout bounds the reading of one sale's ledger. A million live orders take some seconds.
	ledgerTimeout = 2 * time.Minute
	// ledgerChunk is how many orders in flight are looked up by one query.
	ledgerChunk = 5000
)

// liveQuery reads a large part of what there is: the planner takes the table or an index, whichever is shorter.
const liveQuery = `
select id, user_id, quantity, partition, sequence, status, coalesce(number, 0), accepted_at from orders
where sale_id = $1 and status in ('awaiting_payment', 'confirmed', 'paid')`

// unappliedQuery relies on releases_unapplied_idx.
const unappliedQuery = `
select order_id, user_id, quantity, partition, sequence, '', 0, created_at from releases
where sale_id = $1 and applied_at is null`

// knownQuery relies on orders_pkey: one look for each id.
const knownQuery = `
select o.id, o.user_id, o.quantity, o.partition, o.sequence, o.status, coalesce(o.number, 0), o.accepted_at
from unnest($2::text[]) as i (id)
cross join lateral (select * from orders where sale_id = $1 and id = i.id::uuid limit 1) o`

// Ledger reads all that Postgres holds of a sale, at one instant: everything comes from one snapshot. Each live order and
// each release that is not applied goes to its callback as it arrives, so that a million of them need no memory here; a nil
// callback wants none. inFlight are the ids of orders that the caller saw in the stream: those that have a row come back as
// Known. No lock is taken, and writers are not held up.
//
// Errors: KindNotFound for an unknown sale; an error of a callback ends the reading and is returned as it is.
func (s *Store) Ledger(
	ctx context.Context, saleID string, inFlight []string, live, unapplied func(pipeline.LedgerOrder) error,
) (pipeline.Ledger, error) {
	if !pipeline.ValidSaleID(saleID) {
		return pipeline.Ledger{}, unknownSale(saleID)
	}
	ctx, cancel := deadline(ctx, ledgerTimeout)
	defer cancel()
	var ledger pipeline.Ledger
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, s.pool, options, func(tx pgx.Tx) error {
		r := ledgerReader{tx: tx, saleID: saleID, ledger: &ledger}
		return r.read(ctx, inFlight, live, unapplied)
	})
	var interrupted *callbackError
	if errors.As(err, &interrupted) {
		return pipeline.Ledger{}, interrupted.cause
	}
	if err != nil {
		return pipeline.Ledger{}, wrap(err, "ledger of sale "+saleID)
	}
	return ledger, nil
}

// callbackError carries an error of the caller's own through the transaction.
type callbackError struct{ cause error }

func (e *callbackError) Error() string { return e.cause.Error() }

// ledgerReader reads the parts of one ledger within one transaction.
type ledgerReader struct {
	tx     pgx.Tx
	saleID string
	ledger *pipeline.Ledger
}

func (r *ledgerReader) read(
	ctx context.Context, inFlight []string, live, unapplied func(pipeline.LedgerOrder) error,
) error {
	// The snapshot is taken by the first query after this one.
	if err := allowLong(ctx, r.tx); err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{r.sale, r.statuses, r.watermarks, r.applied, r.incidents} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	if err := r.known(ctx, inFlight); err != nil {
		return err
	}
	if err := r.stream(ctx, live, liveQuery); err != nil {
		return err
	}
	return r.stream(ctx, unapplied, unappliedQuery)
}

// allowLong lets the statements of a transaction take as long as a ledger may: the pool's limit is made for short ones.
func allowLong(ctx context.Context, tx pgx.Tx) error {
	limit := strconv.FormatInt(ledgerTimeout.Milliseconds(), 10)
	_, err := tx.Exec(ctx, `select set_config('statement_timeout', $1, true)`, limit)
	return err
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
		select status, partition, count(*), sum(quantity) from orders where sale_id = $1 group by status, partition`, r.saleID)
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

// known looks up the orders in flight. An id that is no UUID is no order's.
func (r *ledgerReader) known(ctx context.Context, inFlight []string) error {
	r.ledger.Known = map[string]pipeline.LedgerOrder{}
	var ids []string
	for _, text := range inFlight {
		if id, err := uuid.Parse(text); err == nil {
			ids = append(ids, id.String())
		}
	}
	note := func(o pipeline.LedgerOrder) error {
		r.ledger.Known[o.OrderID] = o
		return nil
	}
	for len(ids) > 0 {
		n := min(len(ids), ledgerChunk)
		if err := r.stream(ctx, note, knownQuery, ids[:n]); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// stream hands the rows of a query to a callback one by one.
func (r *ledgerReader) stream(
	ctx context.Context, each func(pipeline.LedgerOrder) error, query string, args ...any,
) error {
	if each == nil {
		return nil
	}
	// Ended with the callback's error, or else the rest of a million rows would be read to be thrown away.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rows, err := r.tx.Query(ctx, query, append([]any{pgx.QueryExecModeCacheDescribe, r.saleID}, args...)...)
	if err != nil {
		return err
	}
	var order pipeline.LedgerOrder
	var id uuid.UUID
	into := []any{&id, &order.UserID, &order.Quantity, &order.Partition, &order.Sequence, &order.Status,
		&order.Number, &order.AcceptedAt}
	_, err = pgx.ForEachRow(rows, into, func() error {
		order.OrderID, order.AcceptedAt = id.String(), order.AcceptedAt.UTC()
		if err := each(order); err != nil {
			cancel()
			return &callbackError{err}
		}
		return nil
	})
	return err
}
