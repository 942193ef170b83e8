-- +goose Up

-- What operators asked for under an Idempotency-Key, and what they were answered. A row is claimed by one try at a time;
-- docs/decisions/0026-keys-of-operators.md says why that is once.
create table operator_requests (
    id           bigint           not null generated always as identity,
    key_hash     text collate "C" not null, -- SHA-256 of the key, in hex
    request_hash text collate "C" not null, -- of all that was asked for
    begun_at     timestamptz      not null default now(),
    lease        uuid,                      -- of the try that is at it
    leased_until timestamptz,               -- another may take over then; null: at once
    log_id       bigint,                    -- audit_log.id of the first line that a try wrote: its change was committed
    answered_at  timestamptz,
    status       integer,
    header       jsonb,
    body         bytea,

    constraint operator_requests_pkey primary key (id),
    constraint operator_requests_key unique (key_hash),
    constraint operator_requests_hashes_form check (key_hash ~ '^[0-9a-f]{64}$' and request_hash ~ '^[0-9a-f]{64}$'),
    constraint operator_requests_answer_whole check (
        (answered_at is null) = (status is null) and (answered_at is null) = (header is null)
        and (answered_at is null) = (body is null)
    ),
    -- The limit is idempotency.MaxAnswerBytes.
    constraint operator_requests_body_bounds check (octet_length(body) <= 1048576)
);

-- What to drop next.
create index operator_requests_begun_idx on operator_requests (begun_at);

-- Every change by an operator writes a line of the audit log in its own transaction. This marks the request that the
-- transaction names (set_config('sluice.request', '<id> <lease>', true)) as done in the same transaction. Where another
-- try has taken the request over, the transaction fails: of two tries, one makes the change. The row's lock makes a try
-- that takes over wait for a change that is under way, and so see it.
-- +goose StatementBegin
create function mark_operator_request() returns trigger language plpgsql as $$
declare
    claim text[] := string_to_array(current_setting('sluice.request'), ' ');
begin
    update operator_requests set log_id = coalesce(log_id, new.id)
    where id = claim[1]::bigint and lease = claim[2]::uuid and answered_at is null;
    if not found then
        raise exception 'another try of this request has taken over' using errcode = 'object_not_in_prerequisite_state';
    end if;
    return null;
end
$$;
-- +goose StatementEnd

create trigger audit_log_mark_request after insert on audit_log
    for each row when (coalesce(current_setting('sluice.request', true), '') <> '')
    execute function mark_operator_request();
