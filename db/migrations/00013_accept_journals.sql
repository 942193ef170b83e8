-- +goose Up

-- The accept journals of the api processes: what they hold is on the disks of their machines. A verification of Redis
-- waits for those that are here before it lets anybody order. The row of a process that died remains until another one
-- has taken over its journal and emptied it, or for a day.
create table accept_journals (
    id      uuid        not null,
    host    text        not null, -- for people
    seen_at timestamptz not null default now(),

    constraint accept_journals_pkey primary key (id)
);

-- Up to which generation all that a journal holds of a partition was submitted to Redis again.
create table covered_partitions (
    journal_id uuid     not null,
    partition  smallint not null,
    generation bigint   not null,

    constraint covered_partitions_pkey primary key (journal_id, partition),
    constraint covered_partitions_journal foreign key (journal_id) references accept_journals (id) on delete cascade,
    constraint covered_partitions_bounds check (partition between 0 and 63)
);

-- Who was elected for what, and until when. Postgres' clock is the only one that counts.
create table leases (
    name       text        not null,
    holder     uuid        not null,
    expires_at timestamptz not null,

    constraint leases_pkey primary key (name)
);

-- A journal is trimmed by the ids of its orders, and some of them have only a letter.
create index dead_letters_order_idx on dead_letters (order_id)
    where order_id <> '';

-- When a sale was about to be put into Redis for the first time. From then on buyers may have orders that only Redis
-- knows, so a verification rebuilds it even if the process died before it could say that the sale is loaded.
alter table sales add column loading_at timestamptz;
