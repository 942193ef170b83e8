package db

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

// insertNewQuery and insertQuery are the whole transaction of one sale's orders in one statement, and the others that
// of the orders of several sales: which ones are used is said at insert. insertNewQuery takes orders that have no row:
// one that has fails it as a whole. insertQuery passes over those, for which it looks into every unique index twice,
// which costs half as much again for each order. The parts run in the order in which they read each other:
//
//   - fence: a row as long as the generation is the one that the events were fetched in. The next one can't begin
//     before this is over (00007_generation.sql). None on a server that was not examined (00038_ledger_marks.sql).
//   - inserted: new rows by the order of their keys, so that two batches which share events wait for each other in one
//     order. Any unique index may refuse a row; the sale's row is read, not locked.
//     An order of more units than the sale ever allowed is no row: no script can have accepted it. Nor is one of a sale
//     whose orders are dropped: it had its row.
//   - moved, counted: the sold units, see countMoved.
//   - marked: the watermarks, which no other batch can lock while the sale is locked.
//
// Of one sale, every part that touches a table names it, so that a distributed Postgres runs it on one node; and what
// is returned names its table, which Citus leaves out otherwise.
//
// pay_by counts from now, not from the accept: a buyer can pay once the row is there, and a backlog must not eat up the
// time to do so. Now is the middle one of three clocks: this server's, the process', and Redis' at the accept, which is
// the earliest as long as all of them are right. So one clock that is wrong takes no time from a buyer and blocks no
// unit for as long as it is wrong by.
const (
	insertNewQuery = insertHead + ofOneSale + intoOrders + namedSale + returnInserted + countMoved + insertTail
	insertQuery    = insertHead + ofOneSale + intoOrders + namedSale + whereNew + returnInserted + countMoved + insertTail

	insertNewOfManyQuery = insertHead + ofManySales + intoOrders + theirSales + returnInserted +
		countMovedOfMany + insertTail
	insertOfManyQuery = insertHead + ofManySales + intoOrders + theirSales + whereNew + returnInserted +
		countMovedOfMany + insertTail
)

const insertHead = `
with fence as (
	select number from join_generation() as number where number = $9 and ($13 or server_is_examined())
), input as (
	select i.id::uuid as id, i.number, i.user_id, i.quantity::integer as quantity,
		i.partition::smallint as partition, i.sequence, i.accepted_at, i.key_hash, nullif(i.ticket, 0) as ticket`

// The orders of one sale, $1, and of several, $1 of each.
const (
	ofOneSale = `
	from unnest($2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[],
		$8::timestamptz[], $11::text[], $12::bigint[])
		as i (id, number, user_id, quantity, partition, sequence, accepted_at, key_hash, ticket)
`
	ofManySales = `, i.sale_id
	from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[],
		$8::timestamptz[], $11::text[], $12::bigint[])
		as i (sale_id, id, number, user_id, quantity, partition, sequence, accepted_at, key_hash, ticket)
`
	namedSale  = ` where s.id = $1 order by i.id`
	theirSales = ` and s.id = i.sale_id order by s.id, i.id`
)

const intoOrders = `), inserted as (
	insert into orders as n (
		sale_id, id, number, user_id, quantity, partition, sequence, accepted_at, key_hash, ticket, status, pay_by)
	select s.id, i.id, i.number, i.user_id, i.quantity, i.partition, i.sequence, i.accepted_at, i.key_hash, i.ticket,
		case when s.payment_window > interval '0' then 'awaiting_payment' else 'confirmed' end,
		case when s.payment_window > interval '0' then s.payment_window
			+ greatest(least(now(), $10), least(greatest(now(), $10), i.accepted_at)) end
	from fence
	cross join input i
	join sales s on i.quantity <= greatest(s.max_quantity, s.max_quantity_ever) and s.orders_dropped_at is null
`

const whereNew = `
	on conflict do nothing`

const returnInserted = `
	returning n.sale_id, n.id, n.quantity, n.partition, n.sequence
), moved as (
	select sale_id, quantity as units from inserted
), `

const insertTail = `, marked as (
	insert into watermarks as w (sale_id, partition, seq, stored)
	select c.id, i.partition, max(i.sequence), count(*)
	from inserted i
	join counted c on c.id = i.sale_id
	group by c.id, i.partition
	order by c.id, i.partition
	on conflict (sale_id, partition) do update
	set seq = greatest(w.seq, excluded.seq), stored = w.stored + excluded.stored, updated_at = excluded.updated_at
	returning w.sale_id, w.partition, w.stored
)
select sale_id, id, null::smallint, null::bigint from inserted
union all
select sale_id, null, partition, stored from marked
union all
select '', null, null, null from fence`

// stored is what a statement wrote: the keys of the new rows, and the marks of their sales.
type stored struct {
	keys  map[orderKey]struct{}
	marks map[pipeline.SalePartition]int64
}

// insertOrders writes the orders that have no row yet, and returns their keys. Almost always that is all of them: what
// a worker fetches again, because another one died, is the exception.
func (s *Store) insertOrders(
	ctx context.Context, fence fencing, accepts map[orderKey]accept,
) (stored, error) {
	apart, err := s.isDistributed(ctx)
	if err != nil {
		return stored{}, err
	}
	inserted, err := s.insert(ctx, statements{insertNewQuery, insertNewOfManyQuery, apart}, fence, accepts)
	if hasCode(err, codeUniqueViolation) {
		return s.insert(ctx, statements{insertQuery, insertOfManyQuery, apart}, fence, accepts)
	}
	return inserted, err
}

// statements are those that insert orders.
type statements struct {
	one, many string
	apart     bool // sales may be on several nodes: never several in one statement
}

// insert writes the orders of one sale, as mostly, by the one statement. Those of several are one statement too, which
// for 100 sales takes a fifth of the time of 100. Where sales may be on several nodes, it is the one statement for each
// of them, in the order of their ids and in one transaction.
func (s *Store) insert(
	ctx context.Context, run statements, fence fencing, accepts map[orderKey]accept,
) (stored, error) {
	wrote := stored{make(map[orderKey]struct{}, len(accepts)), map[pipeline.SalePartition]int64{}}
	sales := columnsBySale(maps.Values(accepts), len(accepts))
	current := true
	read := func(rows pgx.Rows) error {
		fenced, err := wrote.read(rows)
		current = current && !fenced
		return err
	}
	now := time.Now()
	var err error
	switch {
	case len(sales) > 1 && run.apart:
		err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			batch := &pgx.Batch{}
			for _, columns := range sales {
				batch.Queue(run.one, columns.arguments(columns.sale, fence, now)...).Query(read)
			}
			return tx.SendBatch(ctx, batch).Close()
		})
	default:
		query, columns := run.one, sales[0]
		var first any = columns.sale
		if len(sales) > 1 {
			query, columns = run.many, newAcceptColumns("", len(accepts))
			of := make([]string, 0, len(accepts))
			for _, a := range accepts {
				columns.add(a)
				of = append(of, a.SaleID)
			}
			first = of
		}
		var rows pgx.Rows
		if rows, err = s.pool.Query(ctx, query, columns.arguments(first, fence, now)...); err == nil {
			err = read(rows)
		}
	}
	if err == nil && !current {
		err = s.fenced(ctx)
	}
	return wrote, err
}

// read adds what a statement returned, and reports whether it was fenced off.
func (w *stored) read(rows pgx.Rows) (fenced bool, err error) {
	fenced = true
	var sale string
	var order *uuid.UUID // of a row of inserted
	var partition *pipeline.Partition
	var count *int64
	_, err = pgx.ForEachRow(rows, []any{&sale, &order, &partition, &count}, func() error {
		switch {
		case order != nil:
			w.keys[orderKey{sale, *order}] = struct{}{}
		case count != nil:
			w.marks[pipeline.SalePartition{SaleID: sale, Partition: *partition}] = *count
		default: // the fence's own row
			fenced = false
		}
		return nil
	})
	return fenced, err
}

// acceptColumns are accepts of one sale turned into one array per column, which is how unnest takes them. Numbers go as
// bigint and are narrowed by Postgres, so that one which is too big is refused as data like any other bad value.
type acceptColumns struct {
	sale                                       string
	orders, users, keyHashes                   []string
	numbers, quantities, partitions, sequences []int64
	times                                      []time.Time
	tickets                                    []int64 // 0 for none
	indexes                                    []int   // of the accepts
}

// columnsBySale are the accepts of each sale, by the order of the sales' ids. Without any it is that of a sale without
// a name, for a rehearsal.
func columnsBySale(accepts iter.Seq[accept], most int) []*acceptColumns {
	bySale := map[string]*acceptColumns{}
	for a := range accepts {
		columns, ok := bySale[a.SaleID]
		if !ok {
			columns = newAcceptColumns(a.SaleID, most)
			bySale[a.SaleID] = columns
			most = 0 // of one sale, mostly all
		}
		columns.add(a)
	}
	if len(bySale) == 0 {
		return []*acceptColumns{newAcceptColumns("", 0)}
	}
	return slices.SortedFunc(maps.Values(bySale), func(a, b *acceptColumns) int { return strings.Compare(a.sale, b.sale) })
}

func newAcceptColumns(sale string, n int) *acceptColumns {
	return &acceptColumns{
		sale: sale, orders: make([]string, 0, n), users: make([]string, 0, n),
		numbers: make([]int64, 0, n), quantities: make([]int64, 0, n), partitions: make([]int64, 0, n),
		sequences: make([]int64, 0, n), times: make([]time.Time, 0, n), keyHashes: make([]string, 0, n),
		tickets: make([]int64, 0, n), indexes: make([]int, 0, n),
	}
}

func (c *acceptColumns) add(a accept) {
	c.orders = append(c.orders, a.key.order.String())
	c.users = append(c.users, a.UserID)
	c.numbers = append(c.numbers, a.Number)
	c.quantities = append(c.quantities, int64(a.Quantity))
	c.partitions = append(c.partitions, int64(a.Partition))
	c.sequences = append(c.sequences, a.Sequence)
	c.times = append(c.times, a.AcceptedAt)
	c.keyHashes = append(c.keyHashes, a.KeyHash)
	c.tickets = append(c.tickets, a.Ticket)
	c.indexes = append(c.indexes, a.index)
}

// arguments are those of the statements that insert orders. The first is the sale, or that of each order.
func (c *acceptColumns) arguments(sale any, fence fencing, now time.Time) []any {
	return []any{
		sale, c.orders, c.numbers, c.users, c.quantities, c.partitions, c.sequences, c.times, fence.generation, now,
		c.keyHashes, c.tickets, fence.unexamined,
	}
}

// outcomeBeside is the outcome of an accept whose order was inserted now, from the first accept of it in this batch.
func outcomeBeside(first, a accept) pipeline.PersistOutcome {
	if a.index == first.index {
		return pipeline.PersistInserted
	}
	return pipeline.PersistRedelivered
}
