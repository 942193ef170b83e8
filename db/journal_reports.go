package db

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/journal"
)

// settledQuery finds those of a sale's orders that nothing has to keep for Postgres: they have a row, in any status, or
// their buyer left the waitlist before they were made, or the orders of the sale are dropped, which begins once each of
// them is settled. It must not read whole tables, because each api asks every few seconds: it relies on orders_pkey,
// waitlist_pkey and sales_pkey, with one look-up for each order.
const settledQuery = `
select $1::text, i.id from unnest($2::text[]) as i (id)
where (select true from orders where sale_id = $1 and id = i.id::uuid)
	or (select left_at from waitlist where sale_id = $1 and order_id = i.id::uuid) is not null
	or (select orders_dropped_at from sales where id = $1) is not null`

// letteredQuery finds those of the orders that have a dead letter, by dead_letters_order_idx. A letter may name an
// order and no sale, so it asks every node, for the few orders that have nothing else.
const letteredQuery = `select order_id from dead_letters where order_id = any($1::text[]) and order_id <> ''`

// UnsettledOrders returns those of the orders that Postgres has nothing of: neither a row, in any status, nor a dead
// letter. What can't be an order's name is left out: nothing can become of it.
func (s *Store) UnsettledOrders(ctx context.Context, orders []pipeline.OrderKey) ([]pipeline.OrderKey, error) {
	ctx, cancel := deadline(ctx, callTimeout) // for all statements
	defer cancel()
	left := possibleOrders(orders)
	settled, err := queryBySale(ctx, s, "unsettled orders", pgx.RowToStructByPos[pipeline.OrderKey], settledQuery, left)
	if err != nil {
		return nil, err
	}
	left = without(left, settled)
	if len(left) > 0 {
		lettered, err := queryAll(ctx, s, "unsettled orders", pgx.RowTo[string], letteredQuery,
			pgx.QueryExecModeCacheDescribe, idsOf(left))
		if err != nil {
			return nil, err
		}
		left = slices.DeleteFunc(left, func(o pipeline.OrderKey) bool { return slices.Contains(lettered, o.OrderID) })
	}
	if len(left) < len(orders) { // a journal forgets the others
		err = s.confirm(ctx)
	}
	return left, err
}

// without returns the orders that are not among some others.
func without(orders, others []pipeline.OrderKey) []pipeline.OrderKey {
	among := make(map[pipeline.OrderKey]bool, len(others))
	for _, o := range others {
		among[o] = true
	}
	return slices.DeleteFunc(orders, func(o pipeline.OrderKey) bool { return among[o] })
}

// settledReports returns those journals whose reports may go: nobody holds them any more, and all that they reported is
// settled.
func (s *Store) settledReports(ctx context.Context, held []string) ([]string, error) {
	type report struct {
		journal string
		orders  []pipeline.OrderKey
	}
	reports, err := queryAll(ctx, s, "reports", func(row pgx.CollectableRow) (r report, err error) {
		var sales, ids []string
		err = row.Scan(&r.journal, &sales, &ids)
		for i := range ids {
			r.orders = append(r.orders, pipeline.OrderKey{SaleID: sales[i], OrderID: ids[i]})
		}
		return r, err
	}, abandonedReportsQuery, held, journalsKept)
	settled := []string{}
	for _, r := range reports {
		left, err := s.UnsettledOrders(ctx, r.orders)
		if err != nil {
			return nil, err
		}
		if len(left) == 0 {
			settled = append(settled, r.journal)
		}
	}
	return settled, err
}

// isAbandoned is the condition that nobody holds the journal of a report r: it is none of $1, and was not seen for the
// time $2. Only reports that list all of their orders can be judged by them.
const isAbandoned = `r.unlisted = 0 and not exists (
	select from accept_journals a
	where a.id = r.journal_id and (a.id = any($1::text[]::uuid[]) or a.seen_at >= now() - $2::interval)
)`

// abandonedReportsQuery reads nothing on most days.
const abandonedReportsQuery = `
select r.journal_id::text,
	array(select o.sale_id from overdue_accepts o where o.journal_id = r.journal_id order by o.sale_id, o.order_id),
	array(select o.order_id::text from overdue_accepts o where o.journal_id = r.journal_id order by o.sale_id, o.order_id)
from journal_reports r where ` + isAbandoned

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
