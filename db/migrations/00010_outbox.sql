-- +goose Up

-- Where events are delivered to: at most webhook.MaxEndpoints rows. Each delivery moves a cursor here, so half of every
-- page is left free, and no index contains what moves.
create table endpoints (
    id              bigint      not null generated always as identity,
    url             text        not null,
    secret          text        not null, -- whsec_…: signing needs it as it is
    types           text[]      not null default '{}', -- of the events it gets; empty: all
    created_at      timestamptz not null default now(),
    disabled_at     timestamptz,                       -- by an operator, the receiver (410), or a day of failures
    disabled_reason text        not null default '',
    -- All positions up to here are delivered, or not wanted.
    cursor          bigint      not null,
    failing_since   timestamptz,                       -- of the first failure in a row; null: no failure since
    attempts        integer     not null default 0,    -- failures in a row
    next_attempt_at timestamptz not null default now(),
    last_error      text        not null default '',
    delivered_at    timestamptz,                       -- of the last delivery
    missed          bigint      not null default 0,    -- events that were too old to be kept before they were delivered
    -- The delivery that runs now. It avoids double deliveries; their order does not depend on it.
    lease           uuid,
    leased_until    timestamptz,

    constraint endpoints_pkey primary key (id),
    constraint endpoints_url_key unique (url),
    constraint endpoints_url_bounds check (octet_length(url) between 1 and 2000),
    constraint endpoints_secret_set check (secret <> ''),
    constraint endpoints_types_bounds check (cardinality(types) <= 32 and array_position(types, null) is null),
    constraint endpoints_disabled_reason_set check ((disabled_at is null) = (disabled_reason = '')),
    constraint endpoints_attempts_bounds check (attempts >= 0 and (attempts = 0) = (failing_since is null)),
    constraint endpoints_last_error_bounds check (octet_length(last_error) <= 1000),
    constraint endpoints_missed_bounds check (missed >= 0),
    constraint endpoints_lease_set check ((lease is null) = (leased_until is null))
) with (fillfactor = 50);

-- Events for others, written by the triggers below in the transaction of the change itself: no change without its
-- event, no event without its change, whatever program writes. Nothing is written while no endpoint is registered.
--
-- Ids do not follow the order in which transactions commit: a reader that has seen id 7 may meet id 6 later. So a
-- position is given to each event once it is visible (sequence_outbox), and readers go by positions alone.
create table outbox (
    id         bigint      not null generated always as identity,
    event_id   uuid        not null default gen_random_uuid(),
    type       text        not null,
    sale_id    text collate "C" not null,
    order_id   uuid,     -- null for an event of the sale itself
    version    smallint, -- of the order
    data       jsonb       not null,
    created_at timestamptz not null default now(),
    position   bigint,

    constraint outbox_pkey primary key (id),
    constraint outbox_type_set check (type <> ''),
    constraint outbox_version_set check ((order_id is null) = (version is null))
);

-- What readers go by.
create unique index outbox_position_key on outbox (position) where position is not null;
-- What has no position yet; as small as the backlog of sequence_outbox.
create index outbox_unsequenced_idx on outbox (id) where position is null;

create sequence outbox_positions as bigint owned by outbox.position;

-- Gives positions to up to at_most visible events, and returns how many got one. One run at a time, and the next one
-- sees what the one before it committed, so that a position becomes visible only after all lower ones: readers skip
-- nothing.
--
-- Of one order, an event is visible only once all earlier ones are (they were committed before the row could change
-- again), and has a greater id than they (the sequence of ids hands each out after theirs). So positions keep their
-- order.
--
-- The function is volatile: each statement in it sees what was committed until then, and not only until the call.
-- +goose StatementBegin
create function sequence_outbox(at_most integer) returns integer language plpgsql volatile as $$
declare
    given integer;
begin
    if not exists (select from outbox where position is null) -- a look costs less than the lock, and mostly finds nothing
        or not pg_try_advisory_xact_lock(hashtextextended('sluice:outbox', 0)) -- somebody else is at it
    then
        return 0;
    end if;
    with due as materialized (
        select id from outbox where position is null order by id limit at_most
    ), numbered as materialized (
        select id, nextval('outbox_positions') as position from due
    )
    update outbox o set position = n.position from numbered n where o.id = n.id;
    get diagnostics given = row_count;
    return given;
end
$$;
-- +goose StatementEnd

-- A time as the API writes it (httpapi, internal/view): RFC 3339, UTC, milliseconds; null stays null.
create function event_time(at timestamptz) returns text language sql stable as $$
    select to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;

-- An order as the status call shows it to its buyer (a test compares the two), with the buyer and the version.
create function event_data(o orders) returns jsonb language sql stable as $$
    select jsonb_strip_nulls(jsonb_build_object(
        'order_id', o.id, 'order_number', coalesce(o.number, 0)::text, 'sale_id', o.sale_id, 'user_id', o.user_id,
        'quantity', o.quantity, 'status', o.status, 'reason', nullif(o.reason, ''), 'version', o.version,
        'accepted_at', event_time(o.accepted_at), 'persisted_at', event_time(o.persisted_at),
        'pay_by', event_time(o.pay_by), 'paid_at', event_time(o.paid_at), 'closed_at', event_time(o.closed_at)))
$$;

-- Once per statement, not per row: persisting is the hottest statement there is, and with no endpoint registered its
-- only cost is a lookup in a table of one page. An order that awaits payment is no event yet. A disabled endpoint
-- counts as registered: once it is enabled again it goes on where it stopped.
-- +goose StatementBegin
create function announce_new_orders() returns trigger language plpgsql as $$
begin
    if exists (select from endpoints) then
        insert into outbox (type, sale_id, order_id, version, data)
        select 'order.' || n.status, n.sale_id, n.id, n.version, event_data(row(n.*)::orders)
        from new_orders n
        where n.status <> 'awaiting_payment';
    end if;
    return null;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create function announce_changed_orders() returns trigger language plpgsql as $$
begin
    if exists (select from endpoints) then
        insert into outbox (type, sale_id, order_id, version, data)
        select 'order.' || n.status, n.sale_id, n.id, n.version, event_data(row(n.*)::orders)
        from new_orders n
        join old_orders o using (sale_id, id)
        where n.status <> o.status and n.status <> 'awaiting_payment';
    end if;
    return null;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create function announce_sold_out() returns trigger language plpgsql as $$
begin
    if exists (select from endpoints) then
        insert into outbox (type, sale_id, data)
        values ('sale.sold_out', new.id,
            jsonb_build_object('sale_id', new.id, 'title', new.title, 'total', new.total, 'sold', new.sold));
    end if;
    return null;
end
$$;
-- +goose StatementEnd

-- Rows that `on conflict do nothing` left out are not in the transition tables.
create trigger orders_announce_new after insert on orders
    referencing new table as new_orders for each statement execute function announce_new_orders();

create trigger orders_announce_changed after update on orders
    referencing old table as old_orders new table as new_orders
    for each statement execute function announce_changed_orders();

-- Per row: the condition is checked without a call, and hardly ever true. Units that come back and are sold again sell
-- the sale out again.
create trigger sales_announce_sold_out after update on sales
    for each row when (new.sold = new.total and old.sold < old.total) execute function announce_sold_out();
