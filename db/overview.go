package db

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/overview"
)

// Overview is what operators see of the installation as a whole, and of one order.
func (s *Store) Overview() overview.Store { return overviewReads{s} }

type overviewReads struct{ *Store }

// dutiesQuery relies on dead_letters_unresolved_idx and payments_due_idx, which are as small as what waits, and on
// orders_accepted_idx for the latest orders.
const dutiesQuery = `
select (select count(*) from dead_letters where resolved_at is null),
	(select count(*) from payments where outcome in ('waiting', 'refund_due') and outcome = 'refund_due'),
	(select count(*) from payments where outcome in ('waiting', 'refund_due') and outcome = 'waiting'),
	count(*), coalesce(percentile_cont(0.5) within group (order by late), 0),
	coalesce(percentile_cont(0.99) within group (order by late), 0), max(accepted_at)
from (
	select accepted_at, greatest(0, extract(epoch from persisted_at - accepted_at))::float8 as late
	from orders order by accepted_at desc, id desc limit $1
) latest`

// Duties counts what waits for an operator, and how long the latest orders took to be stored. Errors: KindUnavailable.
func (s overviewReads) Duties(ctx context.Context) (overview.Duties, error) {
	return queryOne(ctx, s.Store, "duties", func(row pgx.CollectableRow) (d overview.Duties, err error) {
		var median, p99 float64
		var latest *time.Time
		err = row.Scan(&d.Letters, &d.RefundsDue, &d.PaymentsWaiting, &d.Delay.Orders, &median, &p99, &latest)
		d.Delay.Median, d.Delay.P99, d.Delay.Latest = seconds(median), seconds(p99), timeOrZero(latest)
		return d, err
	}, dutiesQuery, overview.SampledOrders)
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// UnitsByStatus adds up the units of a sale's orders. It reads all of them by orders_pkey, under a second for a
// million. Errors: KindUnavailable.
func (s overviewReads) UnitsByStatus(ctx context.Context, saleID string) (map[pipeline.OrderStatus]int64, error) {
	type sum struct {
		Status pipeline.OrderStatus
		Units  int64
	}
	sums, err := queryAll(ctx, s.Store, "units of sale "+saleID, pgx.RowToStructByPos[sum],
		`select status, sum(quantity)::bigint from orders where sale_id = $1 group by status`, saleID)
	units := make(map[pipeline.OrderStatus]int64, len(sums))
	for _, s := range sums {
		units[s.Status] = s.Units
	}
	return units, err
}

// ReleasesOf lists what an order has given back, or is to give back, by releases_pkey. Errors: KindUnavailable.
func (s overviewReads) ReleasesOf(ctx context.Context, saleID, orderID string) ([]overview.OrderRelease, error) {
	if uuid.Validate(orderID) != nil { // no order has such an id
		return nil, nil //nolint:nilerr // which is an answer
	}
	return queryAll(ctx, s.Store, "releases of an order",
		func(row pgx.CollectableRow) (r overview.OrderRelease, err error) {
			var applied *time.Time
			err = row.Scan(&r.Sequence, &r.Reason, &r.Quantity, &r.CreatedAt, &applied, &r.Withdrawn)
			r.CreatedAt, r.AppliedAt = r.CreatedAt.UTC(), timeOrZero(applied)
			return r, err
		}, `
		select sequence, reason, quantity, created_at, applied_at, withdrawn from releases
		where sale_id = $1 and order_id = $2::text::uuid order by sequence`, saleID, orderID)
}

// maxLettersOf is far above the letters that one order can have: one for each time that it was replayed in vain.
const maxLettersOf = 100

// LettersOf returns the dead letters that name an order, the newest first, without payloads. It relies on
// dead_letters_order_idx. Errors: KindUnavailable.
func (s overviewReads) LettersOf(ctx context.Context, orderID string) ([]deadletter.Letter, error) {
	scan := func(row pgx.CollectableRow) (deadletter.Letter, error) { return scanLetter(row) }
	return queryAll(ctx, s.Store, "dead letters of an order", scan,
		`select `+letterColumns+` from dead_letters where order_id = $1 and order_id <> '' order by id desc limit $2`,
		letterText(orderID), maxLettersOf)
}

// CountOrders counts the orders of a sale that are here. It reads them by their index.
func (s overviewReads) CountOrders(ctx context.Context, saleID string) (int64, error) {
	return queryValue[int64](ctx, s.Store, "orders", `select count(*) from orders where sale_id = $1`, saleID)
}
