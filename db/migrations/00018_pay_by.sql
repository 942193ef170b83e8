-- +goose Up

-- An order that is given more time to pay keeps its status, and is newer than it was: readers go by the version.
-- +goose StatementBegin
create function count_pay_by_change() returns trigger language plpgsql as $$
begin
    new.version := old.version + 1;
    return new;
end
$$;
-- +goose StatementEnd

create trigger orders_pay_by before update of pay_by on orders
    for each row when (old.status = 'awaiting_payment' and new.status = old.status
        and new.pay_by > old.pay_by)
    execute function count_pay_by_change();

-- As in 00010_outbox.sql, and order.extended for an order that has more time to pay.
-- +goose StatementBegin
create or replace function announce_changed_orders() returns trigger language plpgsql as $$
begin
    if exists (select from endpoints) then
        insert into outbox (type, sale_id, order_id, version, data)
        select 'order.' || case when n.status <> o.status then n.status else 'extended' end,
            n.sale_id, n.id, n.version, event_data(row(n.*)::orders)
        from new_orders n
        join old_orders o using (sale_id, id)
        where (n.status <> o.status and n.status <> 'awaiting_payment')
            or (n.status = o.status and n.status = 'awaiting_payment' and n.pay_by > o.pay_by);
    end if;
    return null;
end
$$;
-- +goose StatementEnd
