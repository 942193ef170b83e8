-- +goose Up

-- The orders of a sale that has left Redis are dropped once they were kept for long enough, batch by batch
-- (docs/decisions/0031). From then on nothing is added to the sale, and what is left of its orders are the sums below,
-- by which its books are proved as they were by the rows.
alter table sales
    add column orders_dropped_at timestamptz, -- when that began; null: all of its orders are here
    add constraint sales_orders_dropped_set check (orders_dropped_at is null or retired_at is not null);

-- How far that is, of each sale that was ever due.
create table sale_drops (
    sale_id     text collate "C" not null,
    looked_at   timestamptz      not null default now(),
    held        text             not null default '', -- why nothing could be dropped when it was looked at last
    batches     integer          not null default 0,
    orders      bigint           not null default 0,
    exported    bigint           not null default 0,  -- orders that were written into files before
    finished_at timestamptz,                          -- nothing of the sale is left to drop

    constraint sale_drops_pkey primary key (sale_id),
    constraint sale_drops_counts_bounds check (batches >= 0 and orders >= 0 and exported between 0 and orders),
    constraint sale_drops_finished_free check (finished_at is null or held = '')
);

-- How long the workers keep what, for operators: the latest that any worker said.
create table retention_policy (
    single    boolean     not null default true,
    sales     interval    not null, -- in Redis, after they are over; 0 here and below: for ever
    orders    interval    not null,
    audit_log interval    not null,
    events    interval    not null,
    exported  boolean     not null, -- what is dropped is written into files before
    said_at   timestamptz not null default now(),

    constraint retention_policy_pkey primary key (single),
    constraint retention_policy_single_true check (single)
);

-- Orders that were dropped.
create table dropped_orders (
    sale_id   text collate "C" not null,
    partition smallint         not null,
    status    text             not null,
    reason    text             not null, -- why they were rejected; '' otherwise
    currency  text             not null, -- '' where they had no price
    orders    bigint           not null,
    units     bigint           not null,
    amount    bigint           not null, -- what they cost, in minor units

    constraint dropped_orders_pkey primary key (sale_id, partition, status, reason, currency),
    constraint dropped_orders_counts_positive check (orders > 0 and units > 0 and amount >= 0)
);

-- Payments that were dropped with them.
create table dropped_payments (
    sale_id  text collate "C" not null,
    outcome  text             not null,
    currency text             not null, -- '' where no amount was reported
    payments bigint           not null,
    amount   bigint           not null, -- minor units
    refunded bigint           not null, -- of them

    constraint dropped_payments_pkey primary key (sale_id, outcome, currency),
    constraint dropped_payments_counts_bounds check (payments > 0 and amount >= 0 and refunded >= 0)
);

-- Which accepts of a sale on a partition were dropped. They took consecutive numbers, so that the sets stay small
-- whatever is in them.
create table dropped_accepts (
    sale_id   text collate "C" not null,
    partition smallint         not null,
    sequences int8multirange   not null default '{}', -- of orders, but for those that Redis had lost: those are elsewhere
    elsewhere int8multirange   not null default '{}', -- of releases and of orders that Redis had lost
    missing   bigint           not null,              -- that had no order when the first one was dropped, and may have none
    released  bigint           not null default 0,    -- units that these orders gave back when they ended
    withdrawn bigint           not null default 0,    -- units of releases that withdrew them
    waitlist  bigint           not null default 0,    -- entries of the waitlist

    constraint dropped_accepts_pkey primary key (sale_id, partition),
    constraint dropped_accepts_counts_bounds check (missing >= 0 and released >= 0 and withdrawn >= 0 and waitlist >= 0)
);
