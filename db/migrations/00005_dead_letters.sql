-- +goose Up

-- Stream entries that no worker could process, for an operator to inspect, replay or discard.
create table dead_letters (
    id          bigint      not null generated always as identity,
    partition   smallint    not null,
    entry_id    text        not null, -- of the stream entry
    sale_id     text        not null default '', -- as far as the entry shows
    order_id    text        not null default '', -- as far as the entry shows; not always a UUID
    -- The entry's fields. They may be any bytes, which text and jsonb can't hold: db/dead_letter_payload.go encodes
    -- them.
    payload     jsonb       not null,
    reason      text        not null, -- from a fixed set
    error       text        not null,
    deliveries  bigint      not null,
    created_at  timestamptz not null default now(),
    resolved_at timestamptz,
    resolution  text,
    note        text        not null default '', -- why it was discarded
    -- The order that a replay makes: chosen before the first try and kept by every other one, so that a replay which
    -- died half-way is not repeated as a second order.
    replay_order_id uuid,
    -- What a replay asks for, {"s": sale, "u": user, "q": units}, from before the call until its outcome is known.
    replay_as   jsonb,

    constraint dead_letters_pkey primary key (id),
    constraint dead_letters_partition_bounds check (partition between 0 and 63),
    constraint dead_letters_reason_set check (reason <> ''),
    constraint dead_letters_deliveries_bounds check (deliveries >= 0),
    constraint dead_letters_resolution_known check (resolution in ('replayed', 'discarded')),
    constraint dead_letters_resolution_set check ((resolved_at is null) = (resolution is null)),
    constraint dead_letters_replay_set check (
        replay_order_id is not null or (replay_as is null and resolution is distinct from 'replayed')
    ),
    constraint dead_letters_note_bounds check (octet_length(note) <= 1000)
);

-- A second write of an entry changes nothing. The payload belongs to the key because entry ids are clock times: a Redis
-- that lost its data and whose clock was set back can give one out again, and no letter may hide another.
create unique index dead_letters_entry_key on dead_letters (partition, entry_id, md5(payload::text));

-- What no operator has resolved; as small as the backlog.
create index dead_letters_unresolved_idx on dead_letters (id)
    where resolved_at is null;
