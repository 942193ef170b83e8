-- +goose Up

-- What an operator can change about a sale besides its window, its state and its units (docs/decisions/0027).
--
-- A new price is asked of orders from an instant on, and an order costs for ever what was asked when its buyer asked
-- for it: at the instant in its id, which is made once and kept through everything that can happen to an order on its
-- way here. So no order has a price of its own to be stored, and none changes, however late it is persisted.
--
-- An accept was checked against the limit of its time. One that arrives here after the limit was lowered is right all
-- the same, so the highest limit that the sale has ever had bounds what is persisted. 0: max_quantity, which was never
-- changed.
--
-- Units are taken out of a sale by Redis, which alone knows how many are free. Until it has said so, and in case that
-- the process which asked dies, what is to become of the total is noted here.
alter table sales
    add column note              text    not null default '', -- for operators
    -- {until_ms, unit_price (0: none), currency}, oldest first
    add column earlier_prices    jsonb   not null default '[]',
    add column max_quantity_ever integer not null default 0,
    add column reduce_to         bigint, -- units; null: no reduction is under way
    add column reduce_actor      text,
    add constraint sales_note_bounds check (octet_length(note) <= 1000),
    add constraint sales_earlier_prices_bounds check (
        jsonb_typeof(earlier_prices) = 'array' and jsonb_array_length(earlier_prices) <= 100
    ),
    add constraint sales_max_quantity_ever_bounds check (max_quantity_ever between 0 and 1000),
    add constraint sales_reduce_to_bounds check (reduce_to >= 1 and reduce_to < total),
    add constraint sales_reduce_set check ((reduce_to is null) = (reduce_actor is null));

-- When the order of this id was asked for, in ms since 1970: the time in a UUIDv7.
create function order_asked_ms(id uuid) returns bigint language sql immutable as $$
    select ('x' || lpad(left(replace(id::text, '-', ''), 12), 16, '0'))::bit(64)::bigint
$$;

-- What a unit costs in an order of a sale, as pipeline.Sale.PriceOf says (a test compares the two). Nulls: no price.
create function order_price(s sales, id uuid, out unit_price bigint, out currency text) language sql stable as $$
    select nullif(p.unit_price, 0), nullif(p.currency, '')
    from (
        select e.unit_price, e.currency, e.until_ms
        from jsonb_to_recordset(s.earlier_prices) as e (until_ms bigint, unit_price bigint, currency text)
        where order_asked_ms(id) < e.until_ms
        union all
        select s.unit_price, s.currency, null
    ) p
    order by p.until_ms nulls last
    limit 1
$$;

-- As in 00016_refunds.sql, with the price that was asked of this order.
create or replace function event_data(o orders) returns jsonb language sql stable as $$
    select jsonb_strip_nulls(jsonb_build_object(
        'order_id', o.id, 'order_number', coalesce(o.number, 0)::text, 'sale_id', o.sale_id, 'user_id', o.user_id,
        'quantity', o.quantity, 'amount', p.unit_price * o.quantity, 'currency', p.currency,
        'status', o.status, 'reason', nullif(o.reason, ''), 'version', o.version,
        'accepted_at', event_time(o.accepted_at), 'persisted_at', event_time(o.persisted_at),
        'pay_by', event_time(o.pay_by), 'paid_at', event_time(o.paid_at), 'closed_at', event_time(o.closed_at)))
    from (select) one
    left join sales s on s.id = o.sale_id
    left join lateral order_price(s, o.id) p on true
$$;

-- As in 00019_sale_events.sql, with the waitlist, and with the instant from which on the price is asked, where there
-- was another one before it.
create or replace function sale_event_data(s sales) returns jsonb language sql stable as $$
    select jsonb_strip_nulls(jsonb_build_object(
        'sale_id', s.id, 'title', s.title, 'state', s.state, 'total', s.total, 'sold', s.sold,
        'max_quantity', s.max_quantity, 'opens_at', event_time(s.opens_at), 'closes_at', event_time(s.closes_at),
        'payment_window_seconds', extract(epoch from s.payment_window)::bigint, 'waitlist', s.waitlist,
        'unit_price', s.unit_price, 'currency', s.currency,
        'price_from', event_time(to_timestamp((s.earlier_prices -> -1 ->> 'until_ms')::bigint / 1000.0)),
        'version', s.version))
$$;

-- As in 00019_sale_events.sql; and what an operator edited, and units that were taken out. A note is nobody else's.
-- +goose StatementBegin
create or replace function announce_changed_sale() returns trigger language plpgsql as $$
declare
    edited text[] := array_remove(array[
        case when new.title <> old.title then 'title' end,
        case when new.max_quantity <> old.max_quantity then 'max_quantity' end,
        case when new.waitlist <> old.waitlist then 'waitlist' end,
        case when new.unit_price is distinct from old.unit_price then 'unit_price' end,
        case when new.currency is distinct from old.currency then 'currency' end], null);
begin
    if new.total > old.total then
        perform announce_sale('restocked', new, jsonb_build_object('added', new.total - old.total));
    elsif new.total < old.total then
        perform announce_sale('reduced', new, jsonb_build_object('removed', old.total - new.total));
    end if;
    if cardinality(edited) > 0 then
        perform announce_sale('edited', new, jsonb_build_object('edited', edited));
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
