package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/retention"
)

// SetPolicy notes how long the workers keep what, for operators.
func (s *Store) SetPolicy(ctx context.Context, p retention.Policy, exported bool) error {
	_, err := s.exec(ctx, "note the retention", `
		insert into retention_policy as r (sales, orders, audit_log, events, exported) values ($1, $2, $3, $4, $5)
		on conflict on constraint retention_policy_pkey do update
		set sales = excluded.sales, orders = excluded.orders, audit_log = excluded.audit_log, events = excluded.events,
			exported = excluded.exported, said_at = now()`,
		p.Sales, p.Orders, p.AuditLog, p.Events, exported)
	return err
}

// Retention reports how long what is kept, and on a page of the sales that have left Redis, by their ids. sales has few
// rows. Errors: KindInvalid, KindUnavailable.
func (s *Store) Retention(ctx context.Context, filter retention.Filter) (report retention.Report, err error) {
	if filter.Limit < 1 || filter.Limit > retention.MaxListed {
		return report, pipeline.Errorf(pipeline.KindInvalid, "limit %d: use 1 to %d", filter.Limit, retention.MaxListed)
	}
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	report, err = queryOne(ctx, s, "the retention", func(row pgx.CollectableRow) (r retention.Report, err error) {
		p := &r.Policy
		err = row.Scan(&p.Sales, &p.Orders, &p.AuditLog, &p.Events, &r.Exported, &r.SaidAt)
		r.SaidAt = r.SaidAt.UTC()
		return r, err
	}, `select sales, orders, audit_log, events, exported, said_at from retention_policy`)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return report, err
	}
	report.Sales, err = queryAll(ctx, s, "sales that left Redis", scanSaleReport, `
		select s.id, s.retired_at, s.orders_dropped_at, d.finished_at, d.looked_at, coalesce(d.held, ''),
			coalesce(d.orders, 0), coalesce(d.exported, 0)
		from sales s left join sale_drops d on d.sale_id = s.id
		where s.retired_at is not null and s.id > $1 and ($2 or d.finished_at is null)
		order by s.id limit $3`, filter.After, filter.Finished, filter.Limit)
	return report, err
}

func scanSaleReport(row pgx.CollectableRow) (r retention.SaleReport, err error) {
	var begun, finished, looked *time.Time
	err = row.Scan(&r.SaleID, &r.RetiredAt, &begun, &finished, &looked, &r.Held, &r.Dropped, &r.Exported)
	r.RetiredAt, r.BegunAt = r.RetiredAt.UTC(), timeOrZero(begun)
	r.FinishedAt, r.LookedAt = timeOrZero(finished), timeOrZero(looked)
	return r, err
}
