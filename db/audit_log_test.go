package db_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/db"
	"sluice/pipeline/auditlog"
)

// Every choice is compared with what one plain statement finds, and reads an index where there is one.
func TestAuditLogIsReadByIndex(t *testing.T) {
	f := setup(t)
	f.exec(`
		insert into audit_log (at, actor, action, sale_id, detail)
		select timestamptz '2026-01-01' + i * interval '1s', 
			case when i % 2000 = 3 then 'cli:rare' else 'cli:u' || i % 50 end,
			(array['restock', 'cancel', 'replay', 'refund', 'add-endpoint'])[i % 5 + 1],
			case when i % 5 < 2 then 'sale-' || i % 100 end,
			case i % 5
				when 1 then jsonb_build_object('order_id', lpad(i::text, 32, '0')::uuid, 'reason', 'r')
				when 2 then jsonb_build_object('dead_letter', i)
				when 3 then jsonb_build_object('payment', i, 'order_id', lpad((i - 2)::text, 32, '0')::uuid)
				when 4 then jsonb_build_object('endpoint', i % 20)
				else jsonb_build_object('before', jsonb_build_object('total', i), 'after', jsonb_build_object('total', i + 1))
			end
		from generate_series(1, 40000) i`)
	f.exec(`analyze`)
	noon := time.Date(2026, 1, 1, 5, 0, 0, 0, time.UTC)
	order := uuid.MustParse("00000000-0000-0000-0000-000000000701").String()
	for _, try := range []struct {
		filter auditlog.Filter
		where  string
		index  string // "" where the log is read from its end
		rows   int64
	}{
		{auditlog.Filter{}, "true", "audit_log_pkey", 100},
		{auditlog.Filter{After: 20_000}, "id < 20000", "audit_log_pkey", 100},
		{auditlog.Filter{SaleID: "sale-5"}, "sale_id = 'sale-5'", "audit_log_sale_idx", 100},
		{auditlog.Filter{Actor: "cli:rare"}, "actor = 'cli:rare'", "audit_log_actor_idx", 20},
		{auditlog.Filter{OrderID: order}, "detail ->> 'order_id' = '" + order + "'", "audit_log_detail_idx", 10},
		{auditlog.Filter{Letter: 702}, "detail ->> 'dead_letter' = '702'", "audit_log_detail_idx", 10},
		{auditlog.Filter{Payment: 703, SaleID: "sale-1"}, "false", "", 0},
		{auditlog.Filter{Endpoint: 19, Action: "add-endpoint"}, "detail ->> 'endpoint' = '19'", "", 0},
		{auditlog.Filter{Since: noon, Until: noon.Add(time.Minute)}, "at >= '2026-01-01 05:00Z' and at < '2026-01-01 05:01Z'", "", 0},
		{auditlog.Filter{Action: "cancel", Actor: "cli:u1"}, "action = 'cancel' and actor = 'cli:u1'", "", 0},
	} {
		try.filter.Limit = 100
		want := one[[]int64](f, `select coalesce(array_agg(id), '{}') from (
			select id from audit_log where `+try.where+` order by id desc limit 100) newest`)
		entries, err := f.store.AuditLog(f.ctx(), try.filter)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(entries, want, func(e auditlog.Entry, id int64) bool { return e.ID == id }) {
			t.Errorf("%s: got %d lines, want %d", try.where, len(entries), len(want))
		}
		if try.index == "" {
			continue
		}
		query, values, err := db.AuditLogQuery(&try.filter)
		if err != nil {
			t.Fatal(err)
		}
		for _, plan := range explain(f, query, values)[:1] { // it is planned for its values
			wantIndexes(t, try.where, plan, []string{try.index})
			if blocks := plan.Hit + plan.Read; blocks > blocksPerRow*try.rows {
				t.Errorf("%s: looks at %d blocks for %d lines", try.where, blocks, try.rows)
			}
		}
	}
}
