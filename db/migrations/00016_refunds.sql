-- +goose Up

-- An order can be returned once it is paid, and the money of an order that has ended can be paid back. The check is not
-- validated: every row satisfies the narrower one before it, and a scan would hold up the sale.
alter table orders drop constraint orders_status_known;
alter table orders add constraint orders_status_known check (status in (
    'awaiting_payment', 'confirmed', 'paid', 'cancelled', 'expired', 'rejected', 'refund_due', 'returned', 'refunded'
)) not valid;
alter table orders drop constraint orders_number_set;
alter table orders add constraint orders_number_set
    check (number is not null or status in ('rejected', 'refund_due', 'refunded')) not valid;

-- A buyer's latest order, beside orders_closed_buyer_idx: an index of its own, because building that one anew would hold
-- up the sale, and these are few.
create index orders_returned_buyer_idx on orders (sale_id, user_id, accepted_at desc)
    where status in ('returned', 'refunded');

-- +goose StatementBegin
create or replace function check_order_transition() returns trigger language plpgsql as $$
begin
    if not (old.status, new.status) in (
        ('awaiting_payment', 'paid'), ('awaiting_payment', 'cancelled'), ('awaiting_payment', 'expired'),
        ('confirmed', 'cancelled'), ('paid', 'returned'),
        ('cancelled', 'refund_due'), ('expired', 'refund_due'), ('rejected', 'refund_due'),
        ('refund_due', 'refunded'), ('returned', 'refunded')
    ) then
        raise exception 'an order can''t become % once it is %', new.status, old.status
            using errcode = 'check_violation', constraint = 'orders_transition_legal', table = 'orders';
    end if;
    new.version := old.version + 1;
    return new;
end
$$;
-- +goose StatementEnd

-- What was paid back of a payment. A payment whose outcome is refund_due becomes refunded once that is all of it; where
-- it is less, it stays due, and this says how much is not.
alter table payments
    add column refunded_amount bigint not null default 0, -- minor units of currency
    add column refunded_at     timestamptz,               -- when all of it was
    drop constraint payments_outcome_known,
    add constraint payments_outcome_known
        check (outcome in ('waiting', 'paid', 'refund_due', 'refunded', 'refused', 'repeated')) not valid,
    drop constraint payments_reason_set,
    add constraint payments_reason_set
        check ((reason <> '') = (outcome in ('refused', 'refund_due', 'refunded'))) not valid,
    -- Never more than was paid, and something only of what is (or was) due.
    add constraint payments_refunded_bounds check (refunded_amount >= 0 and refunded_amount <= amount),
    add constraint payments_refunded_due check (refunded_amount = 0 or outcome in ('refund_due', 'refunded')),
    -- Partly is not done: a payment is refunded when all of it is.
    add constraint payments_refunded_whole check (outcome <> 'refunded' or refunded_amount = amount or amount is null),
    add constraint payments_refunded_at_set check ((refunded_at is not null) = (outcome = 'refunded'));

-- Money that was paid back still counts once.
drop index payments_money_key;
create unique index payments_money_key on payments (payment_id)
    where outcome in ('waiting', 'paid', 'refund_due', 'refunded');

-- An order is paid by one payment.
create unique index payments_paid_order_key on payments (sale_id, order_id) where outcome = 'paid';

-- Money that was paid back, as the provider (by webhook) or an operator reports it. Written in the transaction that
-- changes the payment and the order. A refused one changed nothing, and is here for somebody to look at.
create table refunds (
    id          bigint           not null generated always as identity,
    webhook_id  text collate "C",          -- null: reported by an operator, or invalid
    refund_id   text collate "C" not null, -- the provider's name of the refund; '' where it can't be read
    payment     bigint,                    -- payments.id; null where there is no such payment
    payment_id  text collate "C" not null, -- the provider's name of the payment; '' where it can't be read
    amount      bigint,                    -- minor units; null where neither the report nor the payment has one
    currency    text,                      -- ISO 4217
    partial     boolean          not null default false, -- the report says that it is less than all that is left
    outcome     text             not null,
    reason      text             not null default '', -- why it was refused; from a fixed set
    detail      text             not null default '', -- the reason in words
    note        text             not null default '', -- of the operator
    actor       text             not null,
    received_at timestamptz      not null default now(),

    constraint refunds_pkey primary key (id),
    -- A webhook that is repeated gets the answer of the first one (I6).
    constraint refunds_webhook_id_key unique (webhook_id),
    constraint refunds_webhook_id_bounds check (octet_length(webhook_id) between 1 and 255),
    constraint refunds_refund_id_bounds check (octet_length(refund_id) <= 255),
    constraint refunds_payment_id_bounds check (octet_length(payment_id) <= 255),
    constraint refunds_amount_bounds check (amount between 1 and 1000000000000),
    constraint refunds_amount_set check ((amount is null) = (currency is null)),
    constraint refunds_currency_form check (currency ~ '^[A-Z]{3}$'),
    constraint refunds_outcome_known check (outcome in ('refunded', 'partially_refunded', 'refused')),
    constraint refunds_partial_said check (outcome <> 'partially_refunded' or partial),
    constraint refunds_reason_set check ((reason <> '') = (outcome = 'refused')),
    constraint refunds_money_set check (outcome = 'refused' or (refund_id <> '' and payment is not null)),
    constraint refunds_note_bounds check (octet_length(note) <= 1000),
    constraint refunds_actor_bounds check (octet_length(actor) between 1 and 128)
);

-- The same refund counts once, however often and by whomever it is reported.
create unique index refunds_money_key on refunds (refund_id) where outcome <> 'refused';

-- The refunds of one payment.
create index refunds_payment_idx on refunds (payment);

-- As in 00010_outbox.sql, with what the order costs. A sale's price is given once.
create or replace function event_data(o orders) returns jsonb language sql stable as $$
    select jsonb_strip_nulls(jsonb_build_object(
        'order_id', o.id, 'order_number', coalesce(o.number, 0)::text, 'sale_id', o.sale_id, 'user_id', o.user_id,
        'quantity', o.quantity, 'amount', (select s.unit_price * o.quantity from sales s where s.id = o.sale_id),
        'currency', (select s.currency from sales s where s.id = o.sale_id),
        'status', o.status, 'reason', nullif(o.reason, ''), 'version', o.version,
        'accepted_at', event_time(o.accepted_at), 'persisted_at', event_time(o.persisted_at),
        'pay_by', event_time(o.pay_by), 'paid_at', event_time(o.paid_at), 'closed_at', event_time(o.closed_at)))
$$;

-- A payment, for receivers of events, with the buyer of its order.
create function payment_event_data(p payments, o orders) returns jsonb language sql stable as $$
    select jsonb_strip_nulls(jsonb_build_object(
        'id', p.id::text, 'payment_id', p.payment_id, 'sale_id', p.sale_id, 'order_id', p.order_id,
        'order_number', coalesce(o.number, 0)::text, 'user_id', o.user_id, 'order_status', o.status,
        'amount', p.amount, 'currency', p.currency, 'outcome', p.outcome, 'reason', nullif(p.reason, ''),
        'refunded_amount', nullif(p.refunded_amount, 0),
        'received_at', event_time(p.received_at), 'refunded_at', event_time(p.refunded_at)))
$$;

-- Money that counts is an event of its own: an order that is paid twice does not change, and its status says nothing of
-- what is paid back. What was refused or repeated is none.
-- +goose StatementBegin
create function announce_payment() returns trigger language plpgsql as $$
begin
    if exists (select from endpoints) then
        insert into outbox (type, sale_id, order_id, version, data)
        select case new.outcome
                when 'paid' then 'payment.received'
                when 'refunded' then 'payment.refunded'
                else case when new.refunded_amount > 0 then 'payment.partially_refunded' else 'payment.refund_due' end
            end, o.sale_id, o.id, o.version, payment_event_data(new, o)
        from orders o
        where o.sale_id = new.sale_id and o.id = new.order_id;
    end if;
    return null;
end
$$;
-- +goose StatementEnd

create trigger payments_announce_new after insert on payments
    for each row when (new.outcome in ('paid', 'refund_due')) execute function announce_payment();

create trigger payments_announce_changed after update on payments
    for each row when (new.outcome in ('paid', 'refund_due', 'refunded')
        and (new.outcome, new.refunded_amount) is distinct from (old.outcome, old.refunded_amount))
    execute function announce_payment();
