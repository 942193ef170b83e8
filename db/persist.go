package db

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

// persistRounds bounds how often events are inserted again whose conflict was gone when it was looked for: each round
// needs another order to be closed, or a sale to be created, within the same millisecond.
const persistRounds = 3

// PersistOrders turns events into orders, each at most once however often it is delivered, and returns what became of
// each event: outcome i belongs to event i. Sold units and watermarks move in the same transaction, and only by what
// was inserted now. It is one round trip, and a second one only when some events did not become rows.
//
// The events were fetched in a generation; once that is over nothing is written.
//
// Errors: KindInvalid for more than pipeline.MaxPersistBatch events; pipeline.ErrStaleGeneration; KindData when
// Postgres refuses a value of some event, for instance units beyond the sale's total: the caller halves the batch to
// find the culprit; KindUnavailable for the rest. A batch that fails is rolled back as a whole, unless it was in a
// second round by then or the reply was lost. Either way repeating it, or parts of it, is safe.
func (s *Store) PersistOrders(
	ctx context.Context, generation pipeline.Generation, events []pipeline.Event,
) ([]pipeline.PersistOutcome, error) {
	if len(events) > pipeline.MaxPersistBatch {
		return nil, pipeline.Errorf(pipeline.KindInvalid, "%d events at once: at most %d are allowed",
			len(events), pipeline.MaxPersistBatch)
	}
	accepts, err := readAccepts(events)
	if err != nil {
		return nil, err
	}
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	outcomes := make([]pipeline.PersistOutcome, len(events))
	for range persistRounds {
		if accepts, err = s.persistRound(ctx, generation, accepts, outcomes); err != nil {
			return nil, err
		}
		if len(accepts) == 0 {
			return outcomes, nil
		}
	}
	return nil, pipeline.Errorf(pipeline.KindUnavailable, "%d orders met conflicts that came and went", len(accepts))
}

// accept is an event with its place in the caller's batch.
type accept struct {
	pipeline.Event
	key   orderKey
	index int
}

type orderKey struct {
	sale  string
	order uuid.UUID
}

func readAccepts(events []pipeline.Event) ([]accept, error) {
	accepts := make([]accept, len(events))
	for i, event := range events {
		id, err := uuid.Parse(event.OrderID)
		if err != nil {
			return nil, pipeline.Wrap(pipeline.KindData, err, "an order id is not a UUID")
		}
		accepts[i] = accept{Event: event, key: orderKey{event.SaleID, id}, index: i}
	}
	return accepts, nil
}

// same reports whether two events stand for one and the same accept.
func (a *accept) same(partition pipeline.Partition, sequence int64) bool {
	return a.Partition == partition && a.Sequence == sequence
}

// persistRound inserts what it can, sets the outcomes, and returns the accepts that must be tried again.
func (s *Store) persistRound(
	ctx context.Context, generation pipeline.Generation, accepts []accept, outcomes []pipeline.PersistOutcome,
) ([]accept, error) {
	if len(accepts) == 0 {
		return nil, nil
	}
	first := firstOfEach(accepts)
	inserted, err := retryCollisions(ctx, func() (map[orderKey]struct{}, error) {
		return s.insertOrders(ctx, generation, first)
	})
	if err != nil {
		return nil, wrap(err, "persist orders")
	}
	var missing []accept
	for _, a := range accepts {
		if _, ok := inserted[a.key]; !ok {
			missing = append(missing, a)
			continue
		}
		outcomes[a.index] = outcomeBeside(first[a.key], a)
	}
	if len(missing) == 0 {
		return nil, nil
	}
	return s.findConflicts(ctx, missing, outcomes)
}

// firstOfEach keeps the first accept of each order: the one that is inserted if it is new.
func firstOfEach(accepts []accept) map[orderKey]accept {
	first := make(map[orderKey]accept, len(accepts))
	for _, a := range accepts {
		if _, ok := first[a.key]; !ok {
			first[a.key] = a
		}
	}
	return first
}

// outcomeBeside is the outcome of an accept whose order was inserted now, from the first accept of it in this batch.
func outcomeBeside(first, a accept) pipeline.PersistOutcome {
	if a.index == first.index {
		return pipeline.PersistInserted
	}
	return pipeline.PersistRedelivered
}

// insertQuery is the whole transaction in one statement. The parts run in the order in which they read each other:
//
//   - fence: a row as long as the generation is the one that the events were fetched in. The next one can't begin
//     before this is over (00007_generation.sql).
//   - inserted: new rows by the order of their keys, so that two batches which share events wait for each other in one
//     order. Any unique index may refuse a row; the sale's row is read, not locked.
//   - moved, locked, counted: the sold units, see countMoved.
//   - marked: the watermarks, which no other batch can lock while the sale is locked.
//
// pay_by counts from now, not from the accept: a buyer can pay once the row is there, and a backlog must not eat up the
// time to do so. It is this server's clock that the expiry compares it with.
const insertQuery = `
with fence as (
	select from join_generation() as number where number = $9
), input as (
	select i.sale_id, i.id::uuid as id, i.number, i.user_id, i.quantity::integer as quantity,
		i.partition::smallint as partition, i.sequence, i.accepted_at
	from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[],
		$8::timestamptz[]) as i (sale_id, id, number, user_id, quantity, partition, sequence, accepted_at)
), inserted as (
	insert into orders (sale_id, id, number, user_id, quantity, partition, sequence, accepted_at, status, pay_by)
	select i.sale_id, i.id, i.number, i.user_id, i.quantity, i.partition, i.sequence, i.accepted_at,
		case when s.payment_window > interval '0' then 'awaiting_payment' else 'confirmed' end,
		case when s.payment_window > interval '0' then now() + s.payment_window end
	from fence
	cross join input i
	join sales s on s.id = i.sale_id
	order by i.sale_id, i.id
	on conflict do nothing
	returning sale_id, id, quantity, partition, sequence
), moved as (
	select sale_id, quantity as units from inserted
), ` + countMoved + `, marked as (
	insert into watermarks as w (sale_id, partition, seq)
	select i.sale_id, i.partition, max(i.sequence)
	from inserted i
	join counted c on c.id = i.sale_id
	group by i.sale_id, i.partition
	order by i.sale_id, i.partition
	on conflict (sale_id, partition) do update
	set seq = greatest(w.seq, excluded.seq), updated_at = now()
)
select sale_id, id from inserted
union all
select '', '00000000-0000-0000-0000-000000000000'::uuid from fence`

// insertOrders runs the statement and returns the keys of the new rows.
func (s *Store) insertOrders(
	ctx context.Context, generation pipeline.Generation, accepts map[orderKey]accept,
) (map[orderKey]struct{}, error) {
	columns := newAcceptColumns(len(accepts))
	for _, a := range accepts {
		columns.add(a)
	}
	rows, err := s.pool.Query(ctx, insertQuery, columns.sales, columns.orders, columns.numbers, columns.users,
		columns.quantities, columns.partitions, columns.sequences, columns.times, generation)
	if err != nil {
		return nil, err
	}
	inserted := make(map[orderKey]struct{}, len(accepts))
	current := false
	var key orderKey
	_, err = pgx.ForEachRow(rows, []any{&key.sale, &key.order}, func() error {
		if key.sale == "" { // the fence's own row
			current = true
			return nil
		}
		inserted[key] = struct{}{}
		return nil
	})
	if err == nil && !current {
		err = pipeline.ErrStaleGeneration
	}
	return inserted, err
}
