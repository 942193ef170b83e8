-- +goose Up

-- How many rows were ever stored of a sale on a partition: what `watermarks.seq` can't tell, because batches commit in
-- another order than they were accepted in. It is counted in the transaction that writes the rows, while their sale is
-- locked, so it grows in the order of commits: a Postgres that has one of them has all before it. A worker tells Redis
-- once it acknowledges the events (settle.lua). Older workers do not count, and tell nothing.
alter table watermarks
    add column stored        bigint not null default 0,
    -- Releases that Redis gave back and that have no row, because this database went back.
    add column releases_lost bigint not null default 0,
    -- The highest accept when it was given back what Redis had: one up to it that has no row had ended by then.
    add column whole         bigint not null default 0;

-- Names the server process and the database. It changes with every restart, every fail-over and every restoration, and
-- with nothing else: pg_postmaster_start_time has microseconds.
create function server_identity() returns text language sql stable as $$
    select extract(epoch from pg_postmaster_start_time())::text || '/' ||
        (select oid::text from pg_database where datname = current_database())
$$;

-- The server on which these rows were last found to be all that Redis knows of. On another one no order is stored, and
-- none expires, until that was found anew: it may be a standby that lagged, or be restored from a backup, and once it
-- has stored more its counts would hide that. Without a row nobody ever looked, and nothing waits.
create table examined_server (
    single      boolean     not null default true,
    identity    text        not null,
    examined_at timestamptz not null default now(),

    constraint examined_server_pkey primary key (single),
    constraint examined_server_single_true check (single),
    constraint examined_server_identity_set check (identity <> '')
);

-- Whether orders may be stored here. The row is read once for each statement.
create function server_is_examined() returns boolean language sql stable as $$
    select not exists (select from examined_server where identity <> server_identity())
$$;

-- Each time that this database was found to have forgotten something that Redis knows, and what became of it. One that
-- is not finished is gone on with, by any process.
create table ledger_losses (
    id          bigint      not null generated always as identity,
    found_at    timestamptz not null default now(),
    finished_at timestamptz,
    detail      jsonb       not null default '[]', -- by sale and partition, in numbers

    constraint ledger_losses_pkey primary key (id)
);

create unique index ledger_losses_unfinished_key on ledger_losses ((finished_at is null)) where finished_at is null;
