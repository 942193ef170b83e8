package db

import (
	"context"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/journal"
)

// isSettled is the condition that nothing has to keep the order i (of_sale, of_id) for Postgres: it has a row, in any
// status, or a dead letter, or its buyer left the waitlist before it was made, or the orders of its sale are dropped,
// which begins once each of them is settled. It relies on orders_pkey, dead_letters_order_idx, waitlist_pkey and
// sales_pkey: one look-up for each order.
const isSettled = `(
	exists (select from orders where sale_id = i.of_sale and id = i.of_id)
	or exists (select from dead_letters where order_id = i.of_id::text and order_id <> '')
	or (select left_at from waitlist where sale_id = i.of_sale and order_id = i.of_id) is not null
	or (select orders_dropped_at from sales where id = i.of_sale) is not null
)`

// unsettledQuery must not read whole tables: each api asks every few seconds.
const unsettledQuery = `
select i.of_sale, i.of_id::text from unnest($1::text[], $2::text[]::uuid[]) as i (of_sale, of_id)
where not ` + isSettled

// UnsettledOrders returns those of the orders that Postgres has nothing of: neither a row, in any status, nor a dead
// letter. What can't be an order's name is left out: nothing can become of it.
func (s *Store) UnsettledOrders(ctx context.Context, orders []pipeline.OrderKey) ([]pipeline.OrderKey, error) {
	sales, ids, _ := orderNames(orders)
	left, err := queryAll(ctx, s, "unsettled orders", pgx.RowToStructByPos[pipeline.OrderKey], unsettledQuery,
		pgx.QueryExecModeCacheDescribe, sales, ids)
	if err == nil && len(left) < len(orders) { // a journal forgets the others
		err = s.confirm(ctx)
	}
	return left, err
}

// ReportOverdue takes the place of what a journal reported before; where nothing is overdue, that is withdrawn. It does
// nothing for a journal that is not known: one that was forgotten has nothing to report.
func (s *Store) ReportOverdue(ctx context.Context, o journal.Overdue) error {
	if len(o.Orders) == 0 && o.Unlisted == 0 {
		_, err := s.exec(ctx, "withdraw report", `delete from journal_reports where journal_id = $1::text::uuid`, o.JournalID)
		return err
	}
	sales, ids, _ := orderNames(o.Orders)
	_, err := s.exec(ctx, "report overdue accepts", `
		with report as (
			insert into journal_reports (journal_id, host, unlisted)
			select id, $2, $3 from accept_journals where id = $1::text::uuid
			on conflict (journal_id) do update
			set host = excluded.host, unlisted = excluded.unlisted, reported_at = now()
			returning journal_id
		), listed as (
			select distinct r.journal_id, i.of_sale, i.of_id
			from report r cross join unnest($4::text[], $5::text[]::uuid[]) as i (of_sale, of_id)
		), withdrawn as (
			delete from overdue_accepts o using report r
			where o.journal_id = r.journal_id and not exists (
				select from listed l where l.of_sale = o.sale_id and l.of_id = o.order_id
			)
		)
		insert into overdue_accepts (journal_id, sale_id, order_id)
		select journal_id, of_sale, of_id from listed order by 1, 2, 3
		on conflict do nothing`, o.JournalID, o.Host, o.Unlisted, sales, ids)
	return err
}

// Witnesses returns the journals that have reported anything overdue, with the orders of one sale. It relies on
// overdue_accepts_pkey; on most days there is none.
func (s *Store) Witnesses(ctx context.Context, saleID string) ([]audit.Witness, error) {
	scan := func(row pgx.CollectableRow) (audit.Witness, error) {
		var w audit.Witness
		var ids []string
		err := row.Scan(&w.JournalID, &w.Host, &w.Unlisted, &ids)
		for _, id := range ids {
			w.Orders = append(w.Orders, pipeline.OrderKey{SaleID: saleID, OrderID: id})
		}
		return w, err
	}
	return queryAll(ctx, s, "journal reports", scan, `
		select r.journal_id::text, r.host, r.unlisted, array(
			select o.order_id::text from overdue_accepts o
			where o.journal_id = r.journal_id and o.sale_id = $1
			order by o.order_id
		)
		from journal_reports r order by r.journal_id`, saleID)
}

// ReportsOfUnknownSales counts the orders that journals have reported of sales that Postgres does not know: it was
// restored to before they were made, or the journals are of another database.
func (s *Store) ReportsOfUnknownSales(ctx context.Context) (map[string]int64, error) {
	type unknown struct {
		Sale   string
		Orders int64
	}
	found, err := queryAll(ctx, s, "reports of unknown sales", pgx.RowToStructByPos[unknown], `
		select o.sale_id, count(*) from overdue_accepts o
		where not exists (select from sales s where s.id = o.sale_id)
		group by o.sale_id`)
	counts := make(map[string]int64, len(found))
	for _, u := range found {
		counts[u.Sale] = u.Orders
	}
	return counts, err
}
