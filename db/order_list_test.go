package db_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/db"
	"sluice/pipeline"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/payments"
)

// list returns the ids of all orders that a filter chooses, page by page, and checks that no page is too long.
func (f *fixture) list(filter lifecycle.OrderFilter) (ids []string, pages int) {
	f.Helper()
	for pages = 1; ; pages++ {
		page, err := f.store.Orders(f.ctx(), filter)
		if err != nil {
			f.Fatalf("orders: %v", err)
		}
		if len(page.Orders) > filter.Limit {
			f.Fatalf("got %d orders, want at most %d", len(page.Orders), filter.Limit)
		}
		for _, o := range page.Orders {
			ids = append(ids, o.ID)
		}
		if page.Next.IsZero() {
			return ids, pages
		}
		if pages > 10_000 {
			f.Fatal("the pages have no end")
		}
		if page.Next, err = lifecycle.OrderPositionOf(page.Next.Cursor()); err != nil {
			f.Fatal(err)
		}
		filter.After = page.Next
	}
}

// manyOrders are orders of several sales, of all ages and statuses, without regard to what happened to them.
func (f *fixture) manyOrders(sales, orders int) {
	f.Helper()
	f.exec(`
		insert into sales (id, title, total, opens_at, closes_at, payment_window, state, partitions, max_quantity)
		select 'sale-' || i, 't', 1000000, '2026-01-01', '2026-02-01', '15min', 'active', '{1}', 1
		from generate_series(0, $1::integer - 1) i`, sales)
	f.exec(`
		insert into orders (sale_id, id, number, user_id, quantity, partition, sequence, accepted_at, pay_by, status,
			reason, closed_at)
		select 'sale-' || i % $1, gen_random_uuid(), i, 'u' || i % ($2 / 2), 1, 1, i,
			timestamptz '2026-01-01' + i / 3 * interval '1s', now(), -- three at the same instant
			case when i % 1000 = 7 then 'rejected' when i <= $2 / 2 then 'expired' else 'awaiting_payment' end, 'r',
			case when i <= $2 / 2 or i % 1000 = 7 then now() end
		from generate_series(1, $2::integer) i`, sales, orders)
	f.exec(`analyze`)
}

// Every choice is compared with what one plain statement finds.
func TestOrdersAreListedPageByPage(t *testing.T) {
	f := setup(t)
	f.manyOrders(3, 3000)
	f.exec(`
		insert into payments (payment_id, sale_id, order_id, outcome, reason, actor, decided_at)
		select 'pay_' || number, sale_id, id, case when number % 2 = 0 then 'refund_due' else 'paid' end,
			case when number % 2 = 0 then 'order-ended' else '' end, 'webhook', now()
		from orders where number % 100 < 2`)
	f.exec(`
		insert into payments (payment_id, sale_id, order_id, outcome, reason, actor, decided_at)
		select 'refused', sale_id, id, 'refused', 'unknown-order', 'webhook', now() from orders where number = 9`)
	from := time.Date(2026, 1, 1, 0, 5, 0, 0, time.UTC)
	const byID, byTime = "id desc", "accepted_at desc, id desc"
	for _, try := range []struct {
		filter       lifecycle.OrderFilter
		where, order string
	}{
		{lifecycle.OrderFilter{}, "true", byTime},
		{lifecycle.OrderFilter{SaleID: "sale-1"}, "sale_id = 'sale-1'", byID},
		{lifecycle.OrderFilter{Statuses: []pipeline.OrderStatus{"rejected"}}, "status = 'rejected'", byTime},
		{
			lifecycle.OrderFilter{SaleID: "sale-2", Statuses: []pipeline.OrderStatus{"rejected", "expired"}},
			"sale_id = 'sale-2' and status in ('rejected', 'expired')", byID,
		},
		{
			lifecycle.OrderFilter{Since: from, Until: from.Add(time.Minute)},
			"accepted_at >= '2026-01-01 00:05Z' and accepted_at < '2026-01-01 00:06Z'", byTime,
		},
		{lifecycle.OrderFilter{SaleID: "sale-0", Until: from}, "sale_id = 'sale-0' and accepted_at < '2026-01-01 00:05Z'", byID},
		{lifecycle.OrderFilter{Number: 17}, "number = 17", byTime},
		{lifecycle.OrderFilter{UserID: "u17"}, "user_id = 'u17'", byTime},
		{lifecycle.OrderFilter{UserID: "u17", SaleID: "sale-1"}, "user_id = 'u17' and sale_id = 'sale-1'", byID},
		{lifecycle.OrderFilter{PaymentID: "pay_101"}, "number = 101", byTime},
		{lifecycle.OrderFilter{PaymentID: "pay_101", SaleID: "sale-0"}, "number = 101 and sale_id = 'sale-0'", byID},
		{lifecycle.OrderFilter{PaymentID: "refused"}, "false", byTime},
		{lifecycle.OrderFilter{Payment: payments.RefundDue}, "number % 100 = 0", byTime},
		{
			lifecycle.OrderFilter{Payment: payments.Paid, SaleID: "sale-1", Statuses: []pipeline.OrderStatus{"expired"}},
			"number % 100 = 1 and sale_id = 'sale-1' and status = 'expired'", byID,
		},
	} {
		want := one[[]string](f, fmt.Sprintf(
			`select coalesce(array_agg(id::text order by %s), '{}') from orders where %s`, try.order, try.where))
		for _, limit := range []int{1, 7, 100, 1000} {
			if limit == 1 && len(want) > 50 {
				continue // one by one takes its time
			}
			try.filter.Limit = limit
			if got, _ := f.list(try.filter); !slices.Equal(got, want) {
				t.Errorf("%s, %d at a time: got %d orders, want %d", try.where, limit, len(got), len(want))
			}
		}
	}
	id := one[string](f, `select id::text from orders where number = 5`)
	for sale, want := range map[string]int{"": 1, "sale-2": 1, "sale-1": 0} {
		if got, _ := f.list(lifecycle.OrderFilter{OrderID: id, SaleID: sale, Limit: 10}); len(got) != want {
			t.Errorf("by id in sale %q: got %v", sale, got)
		}
	}
}

// A choice that few orders satisfy is answered in parts, each of which looks at a bounded number of orders.
func TestAPageLooksAtABoundedNumberOfOrders(t *testing.T) {
	f := setup(t)
	f.manyOrders(1, 250_000)
	got, pages := f.list(lifecycle.OrderFilter{Statuses: []pipeline.OrderStatus{"refunded"}, Limit: 100})
	if len(got) != 0 || pages != 2 {
		t.Errorf("got %d orders on %d pages, want none on 2", len(got), pages)
	}
	if got, pages = f.list(lifecycle.OrderFilter{
		SaleID: "sale-0", Statuses: []pipeline.OrderStatus{"rejected"}, Limit: 1000,
	}); len(got) != 250 || pages != 2 {
		t.Errorf("got %d orders on %d pages, want 250 on 2", len(got), pages)
	}
}

// Lists and searches read an index from where the page begins, never a whole table.
func TestOrderListsUseIndexes(t *testing.T) {
	f := setup(t)
	f.manyOrders(20, 60_000)
	f.exec(`
		insert into payments (webhook_id, payment_id, sale_id, order_id, outcome, actor, decided_at)
		select 'msg_' || number, 'pay_' || number, sale_id, id, 'paid', 'webhook', now() from orders`)
	f.exec(`analyze`)
	newest := lifecycle.OrderPosition{AcceptedAt: time.Date(2026, 1, 1, 3, 0, 0, 0, time.UTC)}
	newest.OrderID[0] = 0x80
	for _, try := range []struct {
		name   string
		filter lifecycle.OrderFilter
		index  string
		rows   int64 // looked at
	}{
		{"all", lifecycle.OrderFilter{}, "orders_accepted_idx", 1000},
		{"all, a later page", lifecycle.OrderFilter{After: newest}, "orders_accepted_idx", 1000},
		{"a time", lifecycle.OrderFilter{Since: newest.AcceptedAt}, "orders_accepted_idx", 1000},
		{"a sale", lifecycle.OrderFilter{SaleID: "sale-3"}, "orders_pkey", 1000},
		{"a sale, a later page", lifecycle.OrderFilter{SaleID: "sale-3", After: newest}, "orders_pkey", 1000},
		{
			"a status",
			lifecycle.OrderFilter{SaleID: "sale-3", Statuses: []pipeline.OrderStatus{"rejected"}},
			"orders_pkey",
			1000,
		},
		{"an outcome", lifecycle.OrderFilter{SaleID: "sale-3", Payment: payments.RefundDue}, "payments_due_idx", 1000},
		{"a number", lifecycle.OrderFilter{Number: 7}, "orders_number_key", 1},
		{"a payment", lifecycle.OrderFilter{PaymentID: "pay_7"}, "payments_money_key", 1},
		{"an id in every sale", lifecycle.OrderFilter{OrderID: newest.OrderID.String()}, "orders_pkey", 20},
		{"a buyer in every sale", lifecycle.OrderFilter{UserID: "u7"}, "orders_live_buyer_key", 60},
	} {
		try.filter.Limit = 100
		query, values, settings := db.OrderListQuery(&try.filter, 1000, 101)
		for _, plan := range explain(f, query, values, settings)[:1] { // it is planned for its values
			wantIndexes(t, try.name, plan, []string{try.index})
			if blocks := plan.Hit + plan.Read; blocks > blocksPerRow*try.rows {
				t.Errorf("%s looks at %d blocks for %d rows", try.name, blocks, try.rows)
			}
		}
	}
}

// TestANewSaleIsNotSorted: a page of a sale that has no statistics yet reads no more than that page.
func TestANewSaleIsNotSorted(t *testing.T) {
	f := setup(t)
	f.exec(`alter table orders set (autovacuum_enabled = off)`)
	f.sale("drop", 100_000)
	f.exec(`
		insert into orders (sale_id, id, number, user_id, quantity, partition, sequence, accepted_at, status)
		select 'drop', (lpad(to_hex(i), 12, '0') || substr(gen_random_uuid()::text, 14))::uuid, i, 'u' || i, 1, 1, i, now(),
			'confirmed'
		from generate_series(1, 100000) i`)
	filter := lifecycle.OrderFilter{SaleID: "drop", Limit: 1000}
	filter.After.OrderID = uuid.MustParse("00000001-86a0-0000-0000-000000000000") // all of them are before it
	query, values, settings := db.OrderListQuery(&filter, 1001, 1001)
	for _, plan := range explain(f, query, values, settings)[:1] {
		wantIndexes(t, "a page", plan, []string{"orders_pkey"})
		plan.walk(func(n planNode) {
			if n.Type == "Sort" || n.Type == "Bitmap Heap Scan" {
				t.Errorf("a page takes a %s over what is left of the sale", n.Type)
			}
		})
	}
}
