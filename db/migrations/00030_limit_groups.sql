-- +goose Up

-- Groups of sales that have a limit per buyer together. What the first sale of a group says holds for all.
create table limit_groups (
    id          text collate "C" not null,
    group_limit integer          not null, -- units that a buyer may have in all sales of the group
    partitions  smallint[]       not null, -- of all its sales

    constraint limit_groups_pkey primary key (id),
    constraint limit_groups_limit_positive check (group_limit > 0),
    constraint limit_groups_partitions_given check (cardinality(partitions) > 0)
);

alter table sales
    add column limit_group text collate "C" not null default '',
    add column group_limit integer not null default 0,
    add constraint sales_limit_group_set check ((limit_group = '') = (group_limit = 0) and group_limit >= 0);

create index sales_limit_group_idx on sales (limit_group) where limit_group <> '';
