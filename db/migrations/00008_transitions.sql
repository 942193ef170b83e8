-- +goose Up

-- How often the status changed, the first one included: what a reader has seen of an order is older or newer by it.
alter table orders add column version smallint not null default 1;

-- The last line behind every conditional update: an order changes its status only along pipeline.Transitions (a test
-- compares the two), whatever program writes. The new version is counted here, so that no update can forget it.
-- +goose StatementBegin
create function check_order_transition() returns trigger language plpgsql as $$
begin
    if not (old.status, new.status) in (
        ('awaiting_payment', 'paid'), ('awaiting_payment', 'cancelled'), ('awaiting_payment', 'expired'),
        ('confirmed', 'cancelled'),
        ('cancelled', 'refund_due'), ('expired', 'refund_due'), ('rejected', 'refund_due')
    ) then
        raise exception 'an order can''t become % once it is %', new.status, old.status
            using errcode = 'check_violation', constraint = 'orders_transition_legal', table = 'orders';
    end if;
    new.version := old.version + 1;
    return new;
end
$$;
-- +goose StatementEnd

create trigger orders_transition before update on orders
    for each row when (old.status is distinct from new.status) execute function check_order_transition();

-- A paid order has the time and the payment.
alter table orders add constraint orders_paid_set
    check (status <> 'paid' or (paid_at is not null and payment_id is not null));
