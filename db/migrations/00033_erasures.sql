-- +goose Up

-- Buyers whose id is to be replaced by a pseudonym wherever it stands (docs/decisions/0032). The id is here until that is
-- done, and nowhere afterwards: nothing leads from the pseudonym back to it.
create table buyer_erasures (
    id           bigint           not null generated always as identity,
    pseudonym    text collate "C" not null default 'erased-' || gen_random_uuid(),
    user_id      text collate "C",           -- null once it is erased
    actor        text             not null,
    requested_at timestamptz      not null default now(),
    looked_at    timestamptz,
    waits_for    integer          not null default 0, -- sales that Redis still had then
    rows         bigint           not null default 0, -- that were changed
    finished_at  timestamptz,

    constraint buyer_erasures_pkey primary key (id),
    constraint buyer_erasures_pseudonym_key unique (pseudonym),
    constraint buyer_erasures_user_id_bounds check (octet_length(user_id) between 1 and 128),
    constraint buyer_erasures_finished_erased check ((finished_at is null) = (user_id is not null)),
    constraint buyer_erasures_counts_positive check (waits_for >= 0 and rows >= 0)
);

-- One erasure of a buyer at a time; and what is left to do.
create unique index buyer_erasures_user_key on buyer_erasures (user_id) where user_id is not null;
