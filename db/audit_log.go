package db

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline/auditlog"
)

// AuditLog returns lines of the audit log, the newest first. Those of a sale, of an actor, and about an order, a dead
// letter, a payment or an endpoint have an index; any other choice reads the log from its end. Errors: KindInvalid,
// KindUnavailable.
func (s *Store) AuditLog(ctx context.Context, filter auditlog.Filter) ([]auditlog.Entry, error) {
	if err := filter.Validate(); err != nil {
		return nil, err
	}
	query, args, err := auditLogQuery(&filter)
	if err != nil {
		return nil, err
	}
	// Planned for these values.
	return queryAll(ctx, s, "audit log", scanLogEntry, query, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...)
}

// scanLogEntry reads a line as auditLogQuery selects it.
func scanLogEntry(row pgx.CollectableRow) (e auditlog.Entry, err error) {
	var detail string
	err = row.Scan(&e.ID, &e.At, &e.Actor, &e.Action, &e.SaleID, &detail)
	e.At, e.Detail = e.At.UTC(), json.RawMessage(detail)
	return e, err
}

func auditLogQuery(f *auditlog.Filter) (query string, args []any, err error) {
	b := queryBuilder{}
	line := conditions{builder: &b}
	line.must(f.SaleID != "", "sale_id = ?", f.SaleID)
	line.must(f.Actor != "", "actor = ?", f.Actor)
	line.must(f.Action != "", "action = ?", f.Action)
	line.must(!f.Since.IsZero(), "at >= ?", f.Since)
	line.must(!f.Until.IsZero(), "at < ?", f.Until)
	line.must(f.After > 0, "id < ?", f.After)
	source := "audit_log"
	if subject := f.Subject(); subject != nil {
		contained, err := json.Marshal(subject)
		if err != nil {
			return "", nil, err
		}
		// audit_log_detail_idx. The lines of a subject are few: sorting them is better than reading the log from its end
		// until there are enough, which is what the planner would try without the fence (offset 0).
		source = "(select * from audit_log where detail @> " + b.arg(string(contained)) + "::text::jsonb offset 0) of_subject"
	}
	return `
select id, at, actor, action, coalesce(sale_id, ''), detail::text from ` + source + `
where ` + line.sql() + `
order by id desc limit ` + b.arg(f.Limit), b.args, nil
}
