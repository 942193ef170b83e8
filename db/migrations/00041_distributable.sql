-- +goose Up

-- What Citus needs so that the same tables can be distributed by the sale (docs/decisions/0045-distributed-postgres.md).
-- Nothing here changes what happens on a single Postgres.
--
-- A trigger may run on a part of a table, whose rows have a type of their own: rows are cast to that of the table. And a
-- part's transition tables can be read by a statement that writes nothing: events are gathered first, and written then.

-- Of which sale a refund is, which its payment has told until now; '' where there is no such payment.
alter table refunds add column sale_id text collate "C" not null default '';
update refunds r set sale_id = p.sale_id from payments p where p.id = r.payment;

-- As the other tables: by byte.
alter table dead_letters alter column sale_id type text collate "C";

-- As in 00019_sale_events.sql. What looks for turns names one sale: so it concerns one node.
-- +goose StatementBegin
create or replace function announce_new_orders() returns trigger language plpgsql as $$
declare
    stored orders[];
    sale   text;
    joined uuid[];
begin
    if exists (select from endpoints) then
        select array_agg(row(n.*)::orders) into stored from new_orders n;

        insert into outbox (type, sale_id, order_id, version, data)
        select 'order.' || n.status, n.sale_id, n.id, n.version, event_data(n)
        from unnest(stored) n;

        for sale in select distinct n.sale_id from unnest(stored) n loop
            continue when not exists (select from sales s where s.id = sale and s.waitlist > 0);
            select array_agg(w.order_id) into joined from waitlist w
            where w.sale_id = sale and w.order_id = any (array(
                select n.id from unnest(stored) n where n.sale_id = sale and n.ticket is null));
            insert into outbox (type, sale_id, order_id, version, data)
            select 'waitlist.turn', n.sale_id, n.id, n.version, event_data(n)
            from unnest(stored) n
            where n.sale_id = sale and n.status in ('awaiting_payment', 'confirmed')
                and (n.ticket is not null or n.id = any (joined));
        end loop;
    end if;
    return null;
end
$$;
-- +goose StatementEnd

-- As in 00018_pay_by.sql.
-- +goose StatementBegin
create or replace function announce_changed_orders() returns trigger language plpgsql as $$
declare
    changed orders[];
    kinds   text[];
begin
    if exists (select from endpoints) then
        select array_agg(row(n.*)::orders), array_agg(case when n.status <> o.status then n.status else 'extended' end)
        into changed, kinds
        from new_orders n
        join old_orders o using (sale_id, id)
        where (n.status <> o.status and n.status <> 'awaiting_payment')
            or (n.status = o.status and n.status = 'awaiting_payment' and n.pay_by > o.pay_by);

        insert into outbox (type, sale_id, order_id, version, data)
        select 'order.' || kinds[i], (changed[i]).sale_id, (changed[i]).id, (changed[i]).version, event_data(changed[i])
        from generate_subscripts(kinds, 1) i;
    end if;
    return null;
end
$$;
-- +goose StatementEnd

-- As in 00016_refunds.sql.
-- +goose StatementBegin
create or replace function announce_payment() returns trigger language plpgsql as $$
declare
    paid orders;
    kind text := case
        when new.outcome = 'paid' then 'payment.received'
        when new.outcome = 'refunded' then 'payment.refunded'
        when new.refunded_amount > 0 then 'payment.partially_refunded'
        else 'payment.refund_due' end;
    told jsonb;
begin
    if exists (select from endpoints) then
        select * into paid from orders where sale_id = new.sale_id and id = new.order_id;
        if found then
            told := payment_event_data(row(new.*)::payments, paid);
            insert into outbox (type, sale_id, order_id, version, data)
            values (kind, paid.sale_id, paid.id, paid.version, told);
        end if;
    end if;
    return null;
end
$$;
-- +goose StatementEnd

-- As in 00025_sale_edits.sql.
-- +goose StatementBegin
create or replace function event_data(o orders) returns jsonb language plpgsql stable as $$
declare
    sold  sales;
    asked record;
begin
    select * into sold from sales where id = o.sale_id;
    select * into asked from order_price(sold, o.id);
    return jsonb_strip_nulls(jsonb_build_object(
        'order_id', o.id, 'order_number', coalesce(o.number, 0)::text, 'sale_id', o.sale_id, 'user_id', o.user_id,
        'quantity', o.quantity, 'amount', asked.unit_price * o.quantity, 'currency', asked.currency,
        'status', o.status, 'reason', nullif(o.reason, ''), 'version', o.version,
        'accepted_at', event_time(o.accepted_at), 'persisted_at', event_time(o.persisted_at),
        'pay_by', event_time(o.pay_by), 'paid_at', event_time(o.paid_at), 'closed_at', event_time(o.closed_at)));
end
$$;
-- +goose StatementEnd

-- As in 00019_sale_events.sql.
-- +goose StatementBegin
create or replace function announce_sale(kind text, s sales, more jsonb) returns void language plpgsql volatile as $$
begin
    if exists (select from endpoints) then
        more := sale_event_data(s) || more;
        insert into outbox (type, sale_id, data) values ('sale.' || kind, s.id, more);
    end if;
end
$$;
-- +goose StatementEnd

-- As in 00019_sale_events.sql.
-- +goose StatementBegin
create or replace function announce_sold_out() returns trigger language plpgsql as $$
begin
    perform announce_sale('sold_out', row(new.*)::sales, '{}');
    return null;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create or replace function announce_new_sale() returns trigger language plpgsql as $$
begin
    perform announce_sale('created', row(new.*)::sales, '{}');
    return null;
end
$$;
-- +goose StatementEnd

-- As in 00036_entry_tickets.sql.
-- +goose StatementBegin
create or replace function announce_changed_sale() returns trigger language plpgsql as $$
declare
    after  sales := row(new.*)::sales;
    edited text[] := array_remove(array[
        case when new.title <> old.title then 'title' end,
        case when new.max_quantity <> old.max_quantity then 'max_quantity' end,
        case when new.waitlist <> old.waitlist then 'waitlist' end,
        case when new.entry_ticket <> old.entry_ticket then 'entry_ticket' end,
        case when new.entry_spread <> old.entry_spread then 'entry_spread_seconds' end,
        case when new.unit_price is distinct from old.unit_price then 'unit_price' end,
        case when new.currency is distinct from old.currency then 'currency' end], null);
begin
    if new.total > old.total then
        perform announce_sale('restocked', after, jsonb_build_object('added', new.total - old.total));
    elsif new.total < old.total then
        perform announce_sale('reduced', after, jsonb_build_object('removed', old.total - new.total));
    end if;
    if cardinality(edited) > 0 then
        perform announce_sale('edited', after, jsonb_build_object('edited', edited));
    end if;
    if (new.opens_at, new.closes_at) is distinct from (old.opens_at, old.closes_at) then
        perform announce_sale('rescheduled', after, '{}');
    end if;
    if new.state = 'closed' and old.state <> 'closed' then
        perform enter_sale_phase(after, 'closed');
    elsif new.state = 'paused' and old.state <> 'paused' then
        perform announce_sale('paused', after, '{}');
    elsif new.state = 'active' and old.state <> 'active' then
        perform announce_sale('resumed', after, '{}');
    end if;
    return null;
end
$$;
-- +goose StatementEnd

-- As in 00019_sale_events.sql, but that the event is written by a trigger of the row: where the sale's other events are
-- written, so that all have ids of one sequence.
-- +goose StatementBegin
create or replace function enter_sale_phase(s sales, entered text) returns void language plpgsql volatile as $$
begin
    insert into sale_phases as p (sale_id, phase) values (s.id, entered)
    on conflict (sale_id) do update
    set phase = excluded.phase, since = excluded.since where p.phase <> excluded.phase;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create function announce_sale_phase() returns trigger language plpgsql as $$
declare
    sale sales;
begin
    if exists (select from endpoints) then
        select * into sale from sales where id = new.sale_id;
        if found then
            perform announce_sale(case when new.phase = 'open' then 'opened' else 'closed' end, sale, '{}');
        end if;
    end if;
    return null;
end
$$;
-- +goose StatementEnd

create trigger sale_phases_announce after insert or update of phase on sale_phases
    for each row when (new.phase <> 'scheduled') execute function announce_sale_phase();

-- As in 00019_sale_events.sql, sale by sale: each is looked at once more when its row is locked.
-- +goose StatementBegin
create or replace function announce_sale_phases(at_most integer) returns integer language plpgsql volatile as $$
declare
    candidate text;
    due       sales;
    changed   integer := 0;
begin
    for candidate in
        select s.id from sales s
        left join sale_phases p on p.sale_id = s.id
        where sale_phase(row(s.*)::sales) <> coalesce(p.phase, '')
        order by s.id limit at_most
    loop
        select * into due from sales where id = candidate for no key update;
        if found and sale_phase(due) <> coalesce((select phase from sale_phases where sale_id = candidate), '') then
            perform enter_sale_phase(due, sale_phase(due));
            changed := changed + 1;
        end if;
    end loop;
    return changed;
end
$$;
-- +goose StatementEnd

-- As in 00010_outbox.sql. The positions are drawn by a statement that names no table, which always runs here.
-- +goose StatementBegin
create or replace function sequence_outbox(at_most integer) returns integer language plpgsql volatile as $$
declare
    due   bigint[];
    of    text[];
    given bigint[];
begin
    if not exists (select 1 from outbox where position is null) -- a look costs less than the lock, and mostly finds nothing
        or not pg_try_advisory_xact_lock(hashtextextended('sluice:outbox', 0)) -- somebody else is at it
    then
        return 0;
    end if;
    select array_agg(d.id order by d.id), array_agg(d.sale_id order by d.id) into due, of
    from (select id, sale_id from outbox where position is null order by id limit at_most) d;
    select array_agg(nextval('outbox_positions')) into given from generate_subscripts(due, 1);
    update outbox o set position = n.position
    from unnest(due, of, given) as n (id, sale_id, position)
    where o.sale_id = n.sale_id and o.id = n.id;
    return coalesce(cardinality(due), 0);
end
$$;
-- +goose StatementEnd
