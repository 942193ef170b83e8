-- +goose Up

-- Sales that have a limit together: how many units a buyer may have in all of them.
alter table sales
    add column limit_group text collate "C" not null default '',
    add column group_limit integer not null default 0,
    add constraint sales_limit_group_set check ((limit_group = '') = (group_limit = 0) and group_limit >= 0);

create index sales_limit_group_idx on sales (limit_group) where limit_group <> '';
