-- +goose Up

-- What operators did. Written in the transaction of the change itself: no change without its line, no line without its
-- change.
create table audit_log (
    id      bigint      not null generated always as identity,
    at      timestamptz not null default now(),
    actor   text        not null,
    action  text        not null,
    sale_id text collate "C", -- null where the action concerns no sale
    detail  jsonb       not null default '{}',

    constraint audit_log_pkey primary key (id),
    constraint audit_log_actor_bounds check (octet_length(actor) between 1 and 128),
    constraint audit_log_action_set check (action <> ''),
    constraint audit_log_detail_object check (jsonb_typeof(detail) = 'object')
);

-- The history of one sale, newest first.
create index audit_log_sale_idx on audit_log (sale_id, id desc);
