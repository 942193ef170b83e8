-- +goose Up

-- A resend that fails is tried again by a schedule of its own. It does not count among the endpoint's failures: what is
-- new arrives, so the endpoint is well, and must not wait for what is old.
alter table resends
    add column attempts        integer     not null default 0, -- failures
    add column failing_since   timestamptz,                    -- of the first of them
    add column next_attempt_at timestamptz not null default now(),
    add constraint resends_attempts_bounds check (attempts >= 0 and (attempts = 0) = (failing_since is null));

-- After a failure the other resends wait for a moment too: a receiver that is down must not get them all in turn.
alter table endpoints add column resends_after timestamptz;
