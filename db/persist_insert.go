package db

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

// insertNewQuery and insertQuery are the whole transaction in one statement. insertNewQuery takes orders that have no
// row: one that has fails it as a whole. insertQuery passes over those, for which it looks into every unique index
// twice, which costs half as much again for each order. The parts run in the order in which they read each other:
//
//   - fence: a row as long as the generation is the one that the events were fetched in. The next one can't begin
//     before this is over (00007_generation.sql). None on a server that was not examined (00038_ledger_marks.sql).
//   - inserted: new rows by the order of their keys, so that two batches which share events wait for each other in one
//     order. Any unique index may refuse a row; the sale's row is read, not locked.
//     An order of more units than the sale ever allowed is no row: no script can have accepted it. Nor is one of a sale
//     whose orders are dropped: it had its row.
//   - moved, locked, counted: the sold units, see countMoved.
//   - marked: the watermarks, which no other batch can lock while the sale is locked.
//
// pay_by counts from now, not from the accept: a buyer can pay once the row is there, and a backlog must not eat up the
// time to do so. Now is the middle one of three clocks: this server's, the process', and Redis' at the accept, which is
// the earliest as long as all of them are right. So one clock that is wrong takes no time from a buyer and blocks no
// unit for as long as it is wrong by.
const (
	insertNewQuery = insertHead + insertTail
	insertQuery    = insertHead + `
	on conflict do nothing` + insertTail
)

const insertHead = `
with fence as (
	select from join_generation() as number where number = $9 and ($13 or server_is_examined())
), input as (
	select i.sale_id, i.id::uuid as id, i.number, i.user_id, i.quantity::integer as quantity,
		i.partition::smallint as partition, i.sequence, i.accepted_at, i.key_hash, nullif(i.ticket, 0) as ticket
	from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[],
		$8::timestamptz[], $11::text[], $12::bigint[])
		as i (sale_id, id, number, user_id, quantity, partition, sequence, accepted_at, key_hash, ticket)
), inserted as (
	insert into orders (
		sale_id, id, number, user_id, quantity, partition, sequence, accepted_at, key_hash, ticket, status, pay_by)
	select i.sale_id, i.id, i.number, i.user_id, i.quantity, i.partition, i.sequence, i.accepted_at, i.key_hash, i.ticket,
		case when s.payment_window > interval '0' then 'awaiting_payment' else 'confirmed' end,
		case when s.payment_window > interval '0' then s.payment_window
			+ greatest(least(now(), $10), least(greatest(now(), $10), i.accepted_at)) end
	from fence
	cross join input i
	join sales s on s.id = i.sale_id and i.quantity <= greatest(s.max_quantity, s.max_quantity_ever)
		and s.orders_dropped_at is null
	order by i.sale_id, i.id`

const insertTail = `
	returning sale_id, id, quantity, partition, sequence
), moved as (
	select sale_id, quantity as units from inserted
), ` + countMoved + `, marked as (
	insert into watermarks as w (sale_id, partition, seq, stored)
	select i.sale_id, i.partition, max(i.sequence), count(*)
	from inserted i
	join counted c on c.id = i.sale_id
	group by i.sale_id, i.partition
	order by i.sale_id, i.partition
	on conflict (sale_id, partition) do update
	set seq = greatest(w.seq, excluded.seq), stored = w.stored + excluded.stored, updated_at = now()
	returning sale_id, partition, stored
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
	inserted, err := s.insert(ctx, insertNewQuery, fence, accepts)
	if hasCode(err, codeUniqueViolation) {
		return s.insert(ctx, insertQuery, fence, accepts)
	}
	return inserted, err
}

// insert runs one of the statements.
func (s *Store) insert(
	ctx context.Context, query string, fence fencing, accepts map[orderKey]accept,
) (stored, error) {
	columns := newAcceptColumns(len(accepts))
	for _, a := range accepts {
		columns.add(a)
	}
	rows, err := s.pool.Query(ctx, query, columns.sales, columns.orders, columns.numbers, columns.users,
		columns.quantities, columns.partitions, columns.sequences, columns.times, fence.generation, time.Now(),
		columns.keyHashes, columns.tickets, fence.unexamined)
	if err != nil {
		return stored{}, err
	}
	wrote := stored{make(map[orderKey]struct{}, len(accepts)), map[pipeline.SalePartition]int64{}}
	current := false
	var sale string
	var order *uuid.UUID // of a row of inserted
	var partition *pipeline.Partition
	var count *int64
	_, err = pgx.ForEachRow(rows, []any{&sale, &order, &partition, &count}, func() error {
		switch {
		case order != nil:
			wrote.keys[orderKey{sale, *order}] = struct{}{}
		case count != nil:
			wrote.marks[pipeline.SalePartition{SaleID: sale, Partition: *partition}] = *count
		default: // the fence's own row
			current = true
		}
		return nil
	})
	if err == nil && !current {
		err = s.fenced(ctx)
	}
	return wrote, err
}

// acceptColumns are accepts turned into one array per column, which is how unnest takes them. Numbers go as bigint and
// are narrowed by Postgres, so that one which is too big is refused as data like any other bad value.
type acceptColumns struct {
	sales, orders, users, keyHashes            []string
	numbers, quantities, partitions, sequences []int64
	times                                      []time.Time
	tickets                                    []int64 // 0 for none
}

func newAcceptColumns(n int) *acceptColumns {
	return &acceptColumns{
		sales: make([]string, 0, n), orders: make([]string, 0, n), users: make([]string, 0, n),
		numbers: make([]int64, 0, n), quantities: make([]int64, 0, n), partitions: make([]int64, 0, n),
		sequences: make([]int64, 0, n), times: make([]time.Time, 0, n), keyHashes: make([]string, 0, n),
		tickets: make([]int64, 0, n),
	}
}

func (c *acceptColumns) add(a accept) {
	c.sales = append(c.sales, a.SaleID)
	c.orders = append(c.orders, a.key.order.String())
	c.users = append(c.users, a.UserID)
	c.numbers = append(c.numbers, a.Number)
	c.quantities = append(c.quantities, int64(a.Quantity))
	c.partitions = append(c.partitions, int64(a.Partition))
	c.sequences = append(c.sequences, a.Sequence)
	c.times = append(c.times, a.AcceptedAt)
	c.keyHashes = append(c.keyHashes, a.KeyHash)
	c.tickets = append(c.tickets, a.Ticket)
}

// outcomeBeside is the outcome of an accept whose order was inserted now, from the first accept of it in this batch.
func outcomeBeside(first, a accept) pipeline.PersistOutcome {
	if a.index == first.index {
		return pipeline.PersistInserted
	}
	return pipeline.PersistRedelivered
}
