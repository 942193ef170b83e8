-- +goose Up

-- In which generation each partition was verified last. A Redis that was verified in an earlier one was replaced by
-- another since, even if it still trusts itself.
create table verified_partitions (
    partition  smallint not null,
    generation bigint   not null,

    constraint verified_partitions_pkey primary key (partition),
    constraint verified_partitions_bounds check (partition between 0 and 63)
);
