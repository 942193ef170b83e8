-- +goose Up

-- The ticket on the waitlist from which an order was made; null for one that its buyer placed, and for one whose event
-- had to be written again without it. Not validated: no row has one yet, and reading all rows would keep orders waiting.
alter table orders
    add column ticket bigint,
    add constraint orders_ticket_positive check (ticket >= 1) not valid;

-- Every new order is an event, one that awaits its payment too: what else would tell others until when to pay? The turn
-- of a buyer on the waitlist is told when the order is stored, because only then it is known until when to pay. It is
-- read from the order itself: the entry in `waitlist` may be recorded later than the order, or never. An order without
-- the ticket is looked for there all the same.
-- +goose StatementBegin
create or replace function announce_new_orders() returns trigger language plpgsql as $$
begin
    if exists (select from endpoints) then
        insert into outbox (type, sale_id, order_id, version, data)
        select 'order.' || n.status, n.sale_id, n.id, n.version, event_data(row(n.*)::orders)
        from new_orders n;

        insert into outbox (type, sale_id, order_id, version, data)
        select 'waitlist.turn', n.sale_id, n.id, n.version, event_data(row(n.*)::orders)
        from new_orders n
        join sales s on s.id = n.sale_id and s.waitlist > 0
        where n.status in ('awaiting_payment', 'confirmed') and (
            n.ticket is not null
            or exists (select from waitlist w where w.sale_id = n.sale_id and w.order_id = n.id)
        );
    end if;
    return null;
end
$$;
-- +goose StatementEnd

-- A sale as its events show it.
create function sale_event_data(s sales) returns jsonb language sql stable as $$
    select jsonb_strip_nulls(jsonb_build_object(
        'sale_id', s.id, 'title', s.title, 'state', s.state, 'total', s.total, 'sold', s.sold,
        'max_quantity', s.max_quantity, 'opens_at', event_time(s.opens_at), 'closes_at', event_time(s.closes_at),
        'payment_window_seconds', extract(epoch from s.payment_window)::bigint,
        'unit_price', s.unit_price, 'currency', s.currency, 'version', s.version))
$$;

create function announce_sale(kind text, s sales, more jsonb) returns void language sql volatile as $$
    insert into outbox (type, sale_id, data)
    select 'sale.' || kind, s.id, sale_event_data(s) || more
    where exists (select from endpoints)
$$;

-- The phase in which each sale was last seen: what becomes true by the passing of time has no statement of its own that
-- could carry a trigger. A change of a row here and its event are one statement, so that each change of phase
-- is one event, however many look at once.
create table sale_phases (
    sale_id text collate "C" not null,
    phase   text             not null,
    since   timestamptz      not null default now(),

    constraint sale_phases_pkey primary key (sale_id),
    constraint sale_phases_phase_known check (phase in ('scheduled', 'open', 'closed'))
);

-- The phase of a sale at this moment, by this server's clock. Null while it is paused within its window: then it is what
-- it was before.
create function sale_phase(s sales) returns text language sql stable as $$
    select case
        when s.state = 'closed' or s.closes_at <= now() then 'closed'
        when s.opens_at > now() then 'scheduled'
        when s.state = 'active' then 'open' end
$$;

-- What has opened or closed before is no event.
insert into sale_phases (sale_id, phase)
select id, coalesce(sale_phase(s), 'open') from sales s;

-- Notes that a sale has entered a phase, and announces it unless the sale was in it.
-- +goose StatementBegin
create function enter_sale_phase(s sales, entered text) returns void language plpgsql volatile as $$
begin
    insert into sale_phases as p (sale_id, phase) values (s.id, entered)
    on conflict on constraint sale_phases_pkey do update
    set phase = excluded.phase, since = now() where p.phase <> excluded.phase;
    if found and entered <> 'scheduled' then
        perform announce_sale(case entered when 'open' then 'opened' else 'closed' end, s, '{}');
    end if;
end
$$;
-- +goose StatementEnd

-- Announces up to at_most sales that opened or closed since the last call, and returns how many changed their phase. A
-- sale's row is locked before its phase is noted: an operator who closes or moves it at this moment comes before or
-- after, and never between. sales has few rows.
-- +goose StatementBegin
create function announce_sale_phases(at_most integer) returns integer language plpgsql volatile as $$
declare
    due     record;
    changed integer := 0;
begin
    for due in
        select s as sale from sales s
        left join sale_phases p on p.sale_id = s.id
        where sale_phase(s) <> coalesce(p.phase, '')
        order by s.id limit at_most
        for no key update of s
    loop
        perform enter_sale_phase(due.sale, sale_phase(due.sale));
        changed := changed + 1;
    end loop;
    return changed;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create function announce_new_sale() returns trigger language plpgsql as $$
begin
    perform announce_sale('created', new, '{}');
    return null;
end
$$;
-- +goose StatementEnd

-- One change may be several facts, and each is an event.
-- +goose StatementBegin
create function announce_changed_sale() returns trigger language plpgsql as $$
begin
    if new.total > old.total then
        perform announce_sale('restocked', new, jsonb_build_object('added', new.total - old.total));
    end if;
    if (new.opens_at, new.closes_at) is distinct from (old.opens_at, old.closes_at) then
        perform announce_sale('rescheduled', new, '{}');
    end if;
    if new.state = 'closed' and old.state <> 'closed' then
        perform enter_sale_phase(new, 'closed');
    elsif new.state = 'paused' and old.state <> 'paused' then
        perform announce_sale('paused', new, '{}');
    elsif new.state = 'active' and old.state <> 'active' then
        perform announce_sale('resumed', new, '{}');
    end if;
    return null;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create or replace function announce_sold_out() returns trigger language plpgsql as $$
begin
    perform announce_sale('sold_out', new, '{}');
    return null;
end
$$;
-- +goose StatementEnd

create trigger sales_announce_new after insert on sales
    for each row execute function announce_new_sale();

-- The version counts changes of the definition: the batches of the workers, which change `sold`, don't get here.
create trigger sales_announce_changed after update on sales
    for each row when (new.version <> old.version) execute function announce_changed_sale();
