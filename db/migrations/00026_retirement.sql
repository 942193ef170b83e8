-- +goose Up

-- When a sale that is over left Redis, which need not have it any more: from then on Postgres alone has its books
-- (docs/decisions/0028). Null: Redis has it, or must. cleared_in is the generation in which Redis was last cleared of
-- it: a verification may follow on the restoring of an older state, which has it again.
alter table sales
    add column retired_at timestamptz,
    add column cleared_in bigint,
    add constraint sales_cleared_in_set check (cleared_in is null or retired_at is not null);
