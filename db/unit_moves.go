package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/installation"
	"sluice/pipeline/moves"
)

// unitMoves is the part of a Store that keeps the moves of units between partitions.
type unitMoves struct{ store *Store }

// maxMovesUnderWay bounds the moves of a sale that have not ended: each is a field in Redis, on two partitions.
const maxMovesUnderWay = 64

// doneMoves is the number up to which all moves of the sale $1 have ended. It must be read with sales.moves in one
// snapshot: a move that begins meanwhile has a higher number.
const doneMoves = `coalesce((select min(number) - 1 from unit_moves where sale_id = $1 and state in ('intended', 'taken')),
	(select moves from sales where id = $1))`

// beginMoveQuery reads what has ended before it waits for the sale's row: in the snapshot of the statement.
const beginMoveQuery = `
with seen as materialized (
	select ` + doneMoves + ` as done,
		(select count(*) from unit_moves where sale_id = $1 and state in ('intended', 'taken')) as under_way,
		(select server_is_examined()) as examined
), numbered as (
	update sales s set moves = s.moves + 1
	from seen
	where s.id = $1 and seen.under_way < $5 and seen.examined and s.retired_at is null
		and s.partitions @> array[$2::smallint, $3::smallint]
	returning s.moves
), begun as (
	insert into unit_moves (sale_id, number, from_partition, to_partition, wanted)
	select $1, moves, $2, $3, $4 from numbered
	returning number
)
select coalesce((select number from begun), 0), seen.done, seen.under_way, seen.examined from seen`

// BeginMove gives a move a number, in one statement. It waits for the sale's row, as every batch of orders does.
func (u unitMoves) BeginMove(ctx context.Context, m moves.Move) (moves.Move, error) {
	var underWay int64
	var examined bool
	scan := func(row pgx.CollectableRow) (moves.Move, error) {
		begun := m
		begun.Units, begun.State = 0, moves.Intended
		return begun, row.Scan(&begun.Number, &begun.Done, &underWay, &examined)
	}
	begun, err := queryOne(ctx, u.store, "begin a move of sale "+m.SaleID, scan, beginMoveQuery,
		m.SaleID, int16(m.From), int16(m.To), m.Wanted, maxMovesUnderWay)
	switch {
	case err != nil:
		return m, err
	case begun.Number == 0 && !examined: // it may have forgotten moves, and would give their numbers to others
		return m, installation.ErrUnexamined
	case begun.Number == 0 && underWay >= maxMovesUnderWay:
		return m, pipeline.Errorf(pipeline.KindOverloaded, "%d moves of sale %s are under way", underWay, m.SaleID)
	case begun.Number == 0:
		return m, pipeline.Errorf(pipeline.KindConflict, "sale %s has no units to move between partitions %s and %s",
			m.SaleID, m.From, m.To)
	}
	return begun, nil
}

// heldMove follows a fence: what Redis answered holds for the generation in which it was asked, and only if no other
// server was verified in the place of the one that answered.
const heldMove = `from fence
	where m.sale_id = $1 and m.number = $2
		and $4::bigint >= coalesce((select generation from verified_partitions where partition = `

const (
	takenMoveQuery = `
with fence as (
	select number from join_generation() as number where number = $3
), changed as (
	update unit_moves m set units = $5, state = case when $5::bigint > 0 then 'taken' else 'void' end, changed_at = now()
	` + heldMove + `m.from_partition), 0) and m.state = 'intended'
	returning m.sale_id, m.from_partition, m.units
)
insert into watermarks as w (sale_id, partition, moved_out)
select sale_id, from_partition, units from changed
on conflict (sale_id, partition) do update set moved_out = w.moved_out + excluded.moved_out`

	givenMoveQuery = `
with fence as (
	select number from join_generation() as number where number = $3
), changed as (
	update unit_moves m set state = 'given', changed_at = now()
	` + heldMove + `m.to_partition), 0) and m.state = 'taken'
	returning m.sale_id, m.to_partition, m.units
)
insert into watermarks as w (sale_id, partition, moved_in)
select sale_id, to_partition, units from changed
on conflict (sale_id, partition) do update set moved_in = w.moved_in + excluded.moved_in`
)

// MoveTaken notes what a move has taken, and counts it, in one statement.
func (u unitMoves) MoveTaken(
	ctx context.Context, m moves.Move, units int64, asked, served pipeline.Generation,
) (moves.Move, error) {
	changed, err := u.store.exec(ctx, "note what a move has taken", takenMoveQuery, m.SaleID, m.Number, asked, served, units)
	if err != nil || changed == 0 {
		return u.move(ctx, m, err)
	}
	m.Units, m.State = units, moves.Taken
	if units == 0 {
		m.State = moves.Void
	}
	return m, nil
}

// MoveGiven notes that the units of a move have arrived, and counts them, in one statement.
func (u unitMoves) MoveGiven(ctx context.Context, m moves.Move, asked, served pipeline.Generation) (moves.Move, error) {
	changed, err := u.store.exec(ctx, "note that a move has arrived", givenMoveQuery, m.SaleID, m.Number, asked, served)
	if err != nil || changed == 0 {
		return u.move(ctx, m, err)
	}
	m.State = moves.Given
	return m, nil
}

const moveColumns = `m.sale_id, m.number, m.from_partition, m.to_partition, m.wanted, m.units, m.state`

func scanMove(row pgx.CollectableRow) (m moves.Move, err error) {
	return m, row.Scan(&m.SaleID, &m.Number, &m.From, &m.To, &m.Wanted, &m.Units, &m.State, &m.Done)
}

// move reads what others have made of a move.
func (u unitMoves) move(ctx context.Context, m moves.Move, err error) (moves.Move, error) {
	if err != nil {
		return m, err
	}
	now, err := queryOne(ctx, u.store, "move of sale "+m.SaleID, scanMove, `
		select `+moveColumns+`, `+doneMoves+` from unit_moves m where m.sale_id = $1 and m.number = $2`, m.SaleID, m.Number)
	if errors.Is(err, pgx.ErrNoRows) { // deleted, which only what has ended is
		m.State = moves.Void
		return m, nil
	}
	return now, err
}

// MovesUnderWay relies on unit_moves_under_way_idx.
func (u unitMoves) MovesUnderWay(ctx context.Context, idle time.Duration, limit int) ([]moves.Move, error) {
	return queryAll(ctx, u.store, "moves under way", scanMove, `
		select `+moveColumns+`, (
			select min(number) - 1 from unit_moves o where o.sale_id = m.sale_id and o.state in ('intended', 'taken')
		) as done
		from unit_moves m
		where m.state in ('intended', 'taken') and m.changed_at <= now() - $1::interval
		order by m.changed_at limit $2`, idle, limit)
}

// ForgetMoves leaves a move while one below it has not ended, or has a moment ago: who has read up to which number all
// had ended before that finds all moves above it. It reads all moves: few are left of each sale.
func (u unitMoves) ForgetMoves(ctx context.Context, after time.Duration) error {
	_, err := u.store.exec(ctx, "forget moves", `
		delete from unit_moves m
		where m.state in ('given', 'void') and m.changed_at <= now() - $1::interval and not exists (
			select from unit_moves o
			where o.sale_id = m.sale_id and o.number < m.number
				and (o.state in ('intended', 'taken') or o.changed_at > now() - $1::interval)
		)`, after)
	return err
}

// SettleMoves decides what becomes of the moves that concern a partition which is about to be rebuilt: one that may
// have taken units there and is not known to have done so is void, and one whose units are on their way there has
// arrived. The rebuild installs what is returned. Until then the partition is closed, so that no answer of it can be
// noted meanwhile: an earlier one is of an earlier generation. Errors: pipeline.ErrStaleGeneration.
func (u unitMoves) SettleMoves(
	ctx context.Context, g pipeline.Generation, at pipeline.SalePartition,
) (standing moves.Standing, err error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	err = u.store.transaction(ctx, func(tx pgx.Tx) error {
		standing = moves.Standing{}
		var present pipeline.Generation
		if err := tx.QueryRow(ctx, `select join_generation()`).Scan(&present); err != nil {
			return err
		}
		if present != g {
			return pipeline.ErrStaleGeneration
		}
		if _, err := tx.Exec(ctx, settleMovesQuery, at.SaleID, int16(at.Partition)); err != nil {
			return err
		}
		return readStanding(ctx, tx, at, &standing)
	})
	if errors.Is(err, pipeline.ErrStaleGeneration) {
		return standing, err
	}
	return standing, wrap(err, "settle the moves of sale "+at.SaleID)
}

// settleMovesQuery counts that it changed something: should the rebuild die, Redis lacks that.
const settleMovesQuery = `
with voided as (
	update unit_moves set state = 'void', changed_at = now()
	where sale_id = $1 and from_partition = $2 and state = 'intended'
	returning 0 as units
), arrived as (
	update unit_moves set state = 'given', changed_at = now()
	where sale_id = $1 and to_partition = $2 and state = 'taken'
	returning units
), settled as (
	select sum(units) as units from (select units from voided union all select units from arrived) s
)
insert into watermarks as w (sale_id, partition, moved_in, moves_settled)
select $1, $2, units, 1 from settled where units is not null
on conflict (sale_id, partition) do update
set moved_in = w.moved_in + excluded.moved_in, moves_settled = w.moves_settled + excluded.moves_settled`

// readStanding reads what was decided. Its statements may see more than the one before: a move that was begun, or has
// taken elsewhere, meanwhile concerns the partition only once it is open.
func readStanding(ctx context.Context, tx pgx.Tx, at pipeline.SalePartition, s *moves.Standing) error {
	err := tx.QueryRow(ctx, `
		select coalesce(w.moved_in, 0), coalesce(w.moved_out, 0), coalesce(w.moves_settled, 0), `+doneMoves+`
		from sales s left join watermarks w on w.sale_id = s.id and w.partition = $2
		where s.id = $1`, at.SaleID, int16(at.Partition)).Scan(&s.MovedIn, &s.MovedOut, &s.Settled, &s.Done)
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, `
		select `+moveColumns+`, 0::bigint from unit_moves m
		where m.sale_id = $1 and m.number > $3 and (m.from_partition = $2 and m.state <> 'intended'
			or m.to_partition = $2 and m.state = 'given')
		order by m.number`, at.SaleID, int16(at.Partition), s.Done)
	if err != nil {
		return err
	}
	all, err := pgx.CollectRows(rows, scanMove)
	for _, m := range all {
		if m.From == at.Partition {
			s.Out = append(s.Out, m)
		} else {
			s.In = append(s.In, m)
		}
	}
	return err
}
