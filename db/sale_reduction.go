package db

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/idempotency"
)

// BeginReduction notes that the total of a sale is to become less. Redis is asked next, and EndReduction notes what it
// said. Until then the sale can't be changed otherwise. It returns the sale with ReduceTo set; a sale that has that
// total already is returned as it is, and so is one of which the same was begun before. Errors: KindNotFound;
// KindInvalid (it is no reduction); KindNotLoaded (Redis was not given the sale yet); KindConflict (the sale is closed,
// or being changed by others).
func (s *Store) BeginReduction(ctx context.Context, id, actor string, to int64) (*pipeline.Sale, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	if idempotency.Done(ctx) {
		return s.begunReduction(ctx, id, to)
	}
	for range changeTries {
		sale, err := s.Sale(ctx, id)
		if err != nil {
			return nil, err
		}
		if err := reducible(sale, to); err != nil || sale.Total == to || sale.ReduceTo == to {
			return sale, err
		}
		begun, err := queryOne(ctx, s, "reduce sale "+id, scanSale, `
			with begun as (
				update sales set reduce_to = $3, reduce_actor = $4, updated_at = now()
				where id = $1 and version = $2 and reduce_to is null
				returning `+saleColumns+`
			), logged as (
				insert into audit_log (actor, action, sale_id, detail)
				select $4, 'begin-reduce', id, jsonb_build_object('to', $3::bigint) from begun
			)
			select * from begun`, id, sale.Version, to, actor)
		if !errors.Is(err, pgx.ErrNoRows) {
			return &begun, err
		}
	}
	return nil, idempotency.ForNow(
		pipeline.Errorf(pipeline.KindConflict, "sale %s is being changed by others; try again", id))
}

// begunReduction is the sale of a reduction that an earlier try of the request began: to be ended, or as it is by now.
func (s *Store) begunReduction(ctx context.Context, id string, to int64) (*pipeline.Sale, error) {
	sale, err := s.Sale(ctx, id)
	if err != nil || sale.ReduceTo == to {
		return sale, err
	}
	claim, _ := idempotency.From(ctx)
	done, err := queryValue[bool](ctx, s, "reduce sale "+id, `
		select exists (select from audit_log
			where sale_id = $1 and action = 'reduce' and id > $2 and detail #>> '{after,total}' = $3::bigint::text)`,
		id, claim.Line, to)
	if err == nil && !done {
		err = pipeline.Errorf(pipeline.KindConflict, "more than %d units of sale %s were taken", to, id)
	}
	return sale, err
}

func reducible(sale *pipeline.Sale, to int64) error {
	switch {
	case sale.Total == to:
		return nil
	case to < 1 || to > sale.Total:
		return pipeline.Errorf(pipeline.KindInvalid, "the stock of sale %s is %d: use 1 to %d units; a restock adds some",
			sale.ID, sale.Total, sale.Total)
	case sale.State == pipeline.SaleClosed:
		return pipeline.Errorf(pipeline.KindConflict, "sale %s is closed, which is final", sale.ID)
	case !sale.RetiredAt.IsZero():
		return pipeline.Errorf(pipeline.KindConflict, "sale %s is over, and has left Redis", sale.ID)
	case sale.LoadedAt.IsZero():
		return pipeline.Errorf(pipeline.KindNotLoaded, "sale %s is not in Redis yet", sale.ID)
	case sale.ReduceTo > 0 && sale.ReduceTo != to:
		return idempotency.ForNow(pipeline.Errorf(pipeline.KindConflict,
			"the stock of sale %s is being reduced to %d; try again once a worker has done so", sale.ID, sale.ReduceTo))
	}
	return nil
}

// endReductionQuery ends a reduction, if it is the one that Redis was asked about. Redis took the units out under the
// next version: where it did on all partitions, that becomes the sale's. Otherwise the version after it brings the
// partitions back on which it did. What Redis said holds for the generation in which it was asked: after a verification
// it may be rebuilt with the total that it had, and must be asked again.
const endReductionQuery = `
with fence as (
	select number from join_generation() as number where number = $4
), before as (
	select s.id, s.reduce_to, s.reduce_actor from sales s
	where s.id = $1 and s.version = $2 and s.reduce_to = $3
	for no key update of s
), changed as (
	update sales s
	set total = case when $5 then b.reduce_to else s.total end, version = s.version + case when $5 then 1 else 2 end,
		reduce_to = null, reduce_actor = null, updated_at = now()
	from before b cross join fence
	where s.id = $1 and s.id = b.id
	returning s.*
), logged as (
	insert into audit_log (actor, action, sale_id, detail)
	select b.reduce_actor, 'reduce', b.id, $6::text::jsonb from before b cross join fence where $5
)
select ` + saleColumns + ` from changed`

// EndReduction notes what Redis said to a reduction: that its units are out, or that too many are taken. It returns the
// sale as it is then, whoever ended the reduction. A sale that has its ReduceTo still was verified anew since Redis was
// asked: ask again.
func (s *Store) EndReduction(
	ctx context.Context, asked *pipeline.Sale, g pipeline.Generation, done bool,
) (*pipeline.Sale, error) {
	after := *asked
	after.Total = asked.ReduceTo
	detail, err := changeDetail(asked, &after)
	if err != nil {
		return nil, err
	}
	ended, err := queryOne(ctx, s, "reduce sale "+asked.ID, scanSale, endReductionQuery, asked.ID, asked.Version,
		asked.ReduceTo, g, done, detail)
	if errors.Is(err, pgx.ErrNoRows) {
		return s.Sale(ctx, asked.ID)
	}
	return &ended, err
}
