package db_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"sluice/db"
)

// planNode is what EXPLAIN says of one step.
type planNode struct {
	Type     string `json:"Node Type"`
	Relation string `json:"Relation Name"`
	Index    string `json:"Index Name"`
	Hit      int64  `json:"Shared Hit Blocks"`
	Read     int64  `json:"Shared Read Blocks"`
	Plans    []planNode
}

func (n planNode) walk(visit func(planNode)) {
	visit(n)
	for _, child := range n.Plans {
		child.walk(visit)
	}
}

// explain runs a prepared statement, once as planned for these values and once for any, and returns the plans.
func explain(f *fixture, query, values string, settings ...string) []planNode {
	f.Helper()
	if values != "" {
		values = "(" + values + ")"
	}
	conn, err := pgx.Connect(f.ctx(), f.url)
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = conn.Close(f.ctx()) }()
	for _, setting := range settings {
		if _, err := conn.Exec(f.ctx(), setting); err != nil {
			f.Fatal(err)
		}
	}
	if _, err := conn.Exec(f.ctx(), "prepare q as "+query); err != nil {
		f.Fatal(err)
	}
	var plans []planNode
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		if _, err := conn.Exec(f.ctx(), "set plan_cache_mode = "+mode); err != nil {
			f.Fatal(err)
		}
		var text string
		var parsed []struct{ Plan planNode }
		if err := conn.QueryRow(f.ctx(), "explain (analyze, buffers, format json) execute q"+values).Scan(&text); err != nil {
			f.Fatal(err)
		}
		if err := json.Unmarshal([]byte(text), &parsed); err != nil {
			f.Fatal(err)
		}
		plans = append(plans, parsed[0].Plan)
	}
	return plans
}

// blocksPerRow is what a row may cost: some lookups, of some three blocks each. Reading an index from end to end is far
// above it, which the index's name alone does not show.
const blocksPerRow = 30

// On tables of a real size, what runs all the time never reads a whole one.
func TestHotPathsUseIndexes(t *testing.T) {
	f := setup(t)
	f.exec(`
		insert into sales (id, title, total, opens_at, closes_at, payment_window, state, partitions, max_quantity)
		select 'sale-' || i, 't', 1000000, '2026-01-01', '2026-02-01', '15min', 'active', '{1}', 1
		from generate_series(0, 999) i`)
	f.exec(`
		insert into orders (sale_id, id, number, user_id, quantity, partition, sequence, accepted_at, pay_by, status,
			closed_at)
		select 'sale-' || i % 10, gen_random_uuid(), i, 'u' || i, 1, 1, i, now(), now() + i * interval '1ms',
			case when i % 4 = 0 then 'expired' else 'awaiting_payment' end, case when i % 4 = 0 then now() end
		from generate_series(1, 60000) i`)
	f.exec(`
		insert into releases (sale_id, order_id, sequence, user_id, quantity, partition, reason, applied_at)
		select sale_id, id, sequence, user_id, quantity, partition, 'expired', case when sequence % 100 > 0 then now() end
		from orders where status = 'expired'`)
	f.exec(`
		insert into dead_letters (partition, entry_id, sale_id, payload, reason, error, deliveries, resolved_at, resolution)
		select 1, i || '-1', 'sale-1', '{}', 'refused', '', 1, case when i % 100 > 0 then now() end,
			case when i % 100 > 0 then 'discarded' end
		from generate_series(1, 20000) i`)
	f.exec(`
		insert into payments (webhook_id, payment_id, sale_id, order_id, outcome, actor, decided_at)
		select 'msg_' || number, 'pay_' || number, sale_id, id,
			case when number % 100 = 0 then 'waiting' else 'paid' end, 'webhook',
			case when number % 100 > 0 then now() end
		from orders where number <= 20000`)
	f.exec(`
		insert into waitlist (sale_id, order_id, user_id, number, quantity, partition, ticket, joined_at)
		select 'sale-1', gen_random_uuid(), 'w' || i, i, 1, 1, i, now() from generate_series(1, 20000) i`)
	f.exec(`
		insert into audit_log (actor, action, at) select 'a', 'restock', now() - interval '40 days' from generate_series(1, 20000)`)
	f.exec(`analyze`)

	const n = 500
	order := uuid.NewString()
	list := func(element string) string { return "array[" + strings.Repeat(element+",", n-1) + element + "]" }
	accepts := []string{
		"'sale-1'", list("'" + order + "'"), list("5"), list("'u7'"), list("1"), list("1"), list("9"), list("now()"),
	}
	for _, try := range []struct {
		name, query, values string
		rows                int64 // that go in or come out at most
		indexes             []string
	}{
		{
			"insert", db.InsertQuery,
			strings.Join(append(accepts[:len(accepts):len(accepts)], "1", "now()", list("''"), list("0"), "false"), ", "), n,
			nil,
		},
		{
			"conflicts", db.ConflictsQuery, strings.Join([]string{accepts[0], accepts[1], accepts[3], accepts[4]}, ", "), n,
			[]string{"orders_pkey", "orders_live_buyer_key"},
		},
		{"taken numbers", db.TakenNumbersQuery, list("5"), n, []string{"orders_number_key"}},
		{"order", db.OrderQuery, fmt.Sprintf("'sale-1', '%s'", order), 1, []string{"orders_pkey"}},
		{
			"latest order", db.LatestOrderQuery, "'sale-1', 'u7'", 1,
			[]string{"orders_live_buyer_key", "orders_closed_buyer_idx"},
		},
		{"known", db.KnownQuery, "'sale-1', " + list("'"+order+"'"), n, []string{"orders_pkey"}},
		{"orders by id", db.OrdersByIDQuery, "'sale-1', " + list("'"+order+"'"), n, []string{"orders_pkey"}},
		{
			"settled", db.SettledQuery, "'sale-1', " + list("'"+order+"'"), n, []string{"orders_pkey", "waitlist_pkey"},
		},
		{"with letters", db.LetteredQuery, list("'" + order + "'"), n, []string{"dead_letters_order_idx"}},
		{"unresolved letters", db.UnresolvedLettersQuery, "5, '', '', 100", 100, []string{"dead_letters_unresolved_idx"}},
		{
			"known payment", db.KnownPaymentQuery, "'msg_5', 'pay_7'", 2,
			[]string{"payments_webhook_id_key", "payments_money_key"},
		},
		{"waiting payments", db.WaitingPaymentsQuery, "0, 100", 100, []string{"payments_waiting_idx", "orders_pkey"}},
		{"payments", db.PaymentsQuery, "5, '', '', 100", 100, []string{"payments_pkey"}},
		{"payments of an order", db.OrderPaymentsQuery, "5, '', '', 100, '" + order + "'", 1, []string{"payments_order_idx"}},
		{"unapplied", db.UnappliedQuery, "'sale-2'", 150, []string{"releases_unapplied_idx"}},
		{
			"orders to drop", db.OrdersToDropQuery, "'sale-4', 500", n, []string{"orders_pkey", "payments_due_idx"},
		},
		{"old lines of the log", db.OldLogQuery, "'30 days', 100", 100, []string{"audit_log_pkey"}},
		{"old reports", db.OldPaymentsQuery, "'30 days', 100", 100, []string{"payments_refused_idx"}},
		{"overdue", db.OverdueQuery, "500, now()", n, []string{"orders_pay_by_idx"}},
	} {
		for _, plan := range explain(f, try.query, try.values) {
			wantIndexes(t, try.name, plan, try.indexes)
			if blocks := plan.Hit + plan.Read; blocks > blocksPerRow*try.rows {
				t.Errorf("%s looks at %d blocks for %d rows", try.name, blocks, try.rows)
			}
		}
	}
}

func wantIndexes(t *testing.T, name string, plan planNode, want []string) {
	t.Helper()
	var used []string
	plan.walk(func(n planNode) {
		used = append(used, n.Index)
		few := []string{"sales", "sale_drops", "generation"} // rows: one of each sale, and one
		if n.Type == "Seq Scan" && !slices.Contains(few, n.Relation) {
			t.Errorf("%s reads all of %s", name, n.Relation)
		}
	})
	for _, index := range want {
		if !slices.Contains(used, index) {
			t.Errorf("%s: indexes used are %v, want %s among them", name, used, index)
		}
	}
}
