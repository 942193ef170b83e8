-- +goose Up

-- The highest accept that is persisted, per sale and partition. It is written in the transaction that writes the order,
-- after the sale's row is locked, so that two batches of one sale never wait for each other here. A Redis whose accept
-- counter is behind it has lost accepts. Likewise with the releases that it is known to have applied.
create table watermarks (
    sale_id    text collate "C" not null,
    partition  smallint         not null,
    seq        bigint           not null default 0,
    released   bigint           not null default 0, -- releases by which Redis gave something back
    lost       bigint           not null default 0, -- accepts that rebuilds found neither here nor in the stream
    updated_at timestamptz      not null default now(),

    constraint watermarks_pkey primary key (sale_id, partition),
    constraint watermarks_partition_bounds check (partition between 0 and 63),
    constraint watermarks_seq_positive check (seq >= 0),
    constraint watermarks_released_positive check (released >= 0),
    constraint watermarks_lost_positive check (lost >= 0)
) with (fillfactor = 50); -- updated by every batch: room for heap-only updates
