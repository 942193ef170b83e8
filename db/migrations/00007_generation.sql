-- +goose Up

-- Counts the verifications of Redis. Events that were fetched before one may have been lost by Redis since: the
-- statement that persists them joins the generation in which they were fetched, and finds nothing to insert once that
-- is over.
create table generation (
    single boolean not null default true,
    number bigint  not null default 1,

    constraint generation_pkey primary key (single),
    constraint generation_single_true check (single),
    constraint generation_number_positive check (number >= 1)
);

insert into generation default values;

-- A transaction that joins keeps the next generation from beginning until it ends. An advisory lock, because its queue
-- is fair: a row that is locked FOR KEY SHARE by one worker after the other would never be free for an update. The
-- function is volatile so that it reads the number after it waited, and not as it was when the statement began.
-- +goose StatementBegin
create function join_generation() returns bigint language plpgsql volatile as $$
begin
    perform pg_advisory_xact_lock_shared(hashtextextended('sluice:generation', 0));
    return (select number from generation);
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create function begin_generation() returns bigint language plpgsql volatile as $$
declare
    begun bigint;
begin
    perform pg_advisory_xact_lock(hashtextextended('sluice:generation', 0));
    update generation set number = number + 1 returning number into begun;
    return begun;
end
$$;
-- +goose StatementEnd
