-- +goose Up

-- Whether an order needs an entry ticket, and over how long buyers with one are let in after the opening. Apis decide by
-- both; Redis has neither. Constant defaults: the table is not written anew. An older api or worker ignores them, so an
-- older api takes orders without a ticket.
alter table sales
    add column entry_ticket boolean not null default false,
    add column entry_spread interval not null default '10 seconds',
    add constraint sales_entry_spread_bounds
        check (entry_spread >= interval '0' and entry_spread <= interval '10 minutes');

-- As in 00025_sale_edits.sql, and whether orders need an entry ticket.
create or replace function sale_event_data(s sales) returns jsonb language sql stable as $$
    select jsonb_strip_nulls(jsonb_build_object(
        'sale_id', s.id, 'title', s.title, 'state', s.state, 'total', s.total, 'sold', s.sold,
        'max_quantity', s.max_quantity, 'opens_at', event_time(s.opens_at), 'closes_at', event_time(s.closes_at),
        'payment_window_seconds', extract(epoch from s.payment_window)::bigint, 'waitlist', s.waitlist,
        'entry_ticket', s.entry_ticket,
        'entry_spread_seconds', case when s.entry_ticket then extract(epoch from s.entry_spread)::bigint end,
        'unit_price', s.unit_price, 'currency', s.currency,
        'price_from', event_time(to_timestamp((s.earlier_prices -> -1 ->> 'until_ms')::bigint / 1000.0)),
        'version', s.version))
$$;

-- As in 00025_sale_edits.sql, and entry tickets.
-- +goose StatementBegin
create or replace function announce_changed_sale() returns trigger language plpgsql as $$
declare
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
