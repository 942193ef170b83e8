-- +goose Up

-- The outbox of stock and slots to give back to Redis. A row is written in the transaction that ends an order, so that
-- no crash can lose it, and is marked applied after Redis has done it; between the two it may be done again, which
-- changes nothing there.
--
-- A release gives back one *admission*, which the sequence names: an order that was admitted twice (Redis lost the
-- first one) owes two of them. No foreign keys, for the reason given at orders.
create table releases (
    sale_id    text collate "C" not null,
    order_id   uuid             not null,
    sequence   bigint           not null, -- of the accept that took the units
    user_id    text collate "C" not null,
    quantity   integer          not null, -- units
    partition  smallint         not null,
    reason     text             not null,
    created_at timestamptz      not null default now(),
    applied_at timestamptz,               -- when Redis was known to have it
    given_back boolean,                   -- whether Redis gave units back then, or the slot named another order already

    constraint releases_pkey primary key (sale_id, order_id, sequence),
    constraint releases_sequence_positive check (sequence >= 1),
    constraint releases_quantity_bounds check (quantity between 1 and 1000),
    constraint releases_partition_bounds check (partition between 0 and 63),
    constraint releases_reason_set check (reason <> ''),
    constraint releases_given_back_set check (given_back is null or applied_at is not null)
);

-- The work that is left, grouped as Redis takes it (one script call per sale and partition), oldest first. It stays as
-- small as the backlog, whatever the table holds.
create index releases_unapplied_idx on releases (sale_id, partition, created_at)
    where applied_at is null;
