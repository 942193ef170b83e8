-- +goose Up

-- The secret that an endpoint had before, while its receiver changes to the new one: events are signed with both.
alter table endpoints
    add column previous_secret       text        not null default '',
    add column previous_secret_until timestamptz,
    add constraint endpoints_previous_secret_timed check (previous_secret = '' or previous_secret_until is not null);
