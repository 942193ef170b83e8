-- +goose Up

-- What was decided once, when Sluice was installed. The primary key admits the value true only: there is one row.
create table installation (
    single     boolean     not null default true,
    partitions smallint    not null,
    created_at timestamptz not null default now(),

    constraint installation_pkey primary key (single),
    constraint installation_single_true check (single),
    -- The limit is pipeline.MaxPartitions.
    constraint installation_partitions_bounds check (partitions between 1 and 64)
);

-- One item on sale. The limits are those of package pipeline: a test compares them.
--
-- `sold` is the hot spot of the whole database: every batch of every worker adds to it. Three things keep that cheap.
-- A batch takes the row's lock once, as its last step but one, and in the order of sale ids. No index contains `sold`,
-- so that an update is heap-only. And half of every page is left free for the new versions.
--
-- Keys compare by byte (collate "C"): faster, and no upgrade of the system's collations can corrupt their indexes.
create table sales (
    id             text collate "C" not null,
    title          text             not null,
    total          bigint           not null,
    sold           bigint           not null default 0, -- units in live orders
    max_quantity   integer          not null,           -- units per order
    opens_at       timestamptz      not null,
    closes_at      timestamptz      not null,
    payment_window interval         not null,           -- 0: orders need no payment
    state          text             not null,
    partitions     smallint[]       not null,           -- where it is placed in Redis; never changed
    version        bigint           not null default 1, -- counts changes of the definition, not of `sold`
    loaded_at      timestamptz,                         -- when it was first put into Redis
    created_at     timestamptz      not null default now(),
    updated_at     timestamptz      not null default now(), -- of the definition, not of `sold`

    constraint sales_pkey primary key (id),
    constraint sales_id_form check (id ~ '^[a-z0-9][a-z0-9-]{0,63}$'),
    constraint sales_title_bounds check (octet_length(title) between 1 and 200),
    constraint sales_total_bounds check (total between 1 and 2147483648),
    -- No oversell (I1): the last line, which holds even when Redis has lost its state.
    constraint sales_sold_within_total check (sold between 0 and total),
    constraint sales_max_quantity_bounds check (max_quantity between 1 and 1000),
    constraint sales_window_order check (closes_at > opens_at),
    constraint sales_payment_window_bounds check (payment_window between interval '0' and interval '720 hours'),
    constraint sales_state_known check (state in ('active', 'paused', 'closed')),
    constraint sales_partitions_bounds check (
        cardinality(partitions) between 1 and 64
        and array_position(partitions, null) is null
        and 0 <= all (partitions) and 63 >= all (partitions)
    ),
    constraint sales_version_positive check (version >= 1)
) with (fillfactor = 50);
