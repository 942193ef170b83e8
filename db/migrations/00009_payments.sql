-- +goose Up

-- What a unit costs, in minor units of a currency (cents, for instance). Null: the sale has no price, and what is paid
-- is recorded without being compared. It is given once, with the sale.
alter table sales
    add column unit_price bigint,
    add column currency   text,
    add constraint sales_unit_price_bounds check (unit_price between 1 and 1000000000),
    add constraint sales_currency_form check (currency ~ '^[A-Z]{3}$'),
    add constraint sales_price_set check ((unit_price is null) = (currency is null));

-- A rejected order may have no number, and keeps none when its money is to be paid back.
alter table orders drop constraint orders_number_set;
alter table orders add constraint orders_number_set check (number is not null or status in ('rejected', 'refund_due'));

-- Every payment that was reported by an authenticated provider, or by an operator, and its outcome.
-- Written in the transaction that changes the order, so that no money counts twice and none is forgotten. What can't be
-- read is left out of a refused one, and the reason names it. No foreign keys, for the reason given at orders.
create table payments (
    id           bigint           not null generated always as identity,
    webhook_id   text collate "C",          -- null: reported by an operator, or invalid
    payment_id   text collate "C" not null, -- the provider's name of the money; '' where it can't be read
    sale_id      text collate "C" not null, -- '' where it can't be read
    order_id     uuid,                      -- null where it can't be read
    user_id      text collate "C" not null default '', -- the payer, as far as the provider reports it
    amount       bigint,                    -- minor units; null where it is not reported, or can't be read
    currency     text,                      -- ISO 4217
    outcome      text             not null,
    reason       text             not null default '', -- why it was refused, or is to be paid back; from a fixed set
    detail       text             not null default '', -- the reason in words
    order_status text             not null default '', -- of the order, when this was decided
    actor        text             not null,
    received_at  timestamptz      not null default now(),
    decided_at   timestamptz,               -- null while it waits for its order

    constraint payments_pkey primary key (id),
    -- A webhook that is repeated gets the answer of the first one (I6).
    constraint payments_webhook_id_key unique (webhook_id),
    constraint payments_webhook_id_bounds check (octet_length(webhook_id) between 1 and 255),
    constraint payments_payment_id_bounds check (octet_length(payment_id) <= 255),
    constraint payments_amount_bounds check (amount between 1 and 1000000000000),
    constraint payments_currency_form check (currency ~ '^[A-Z]{3}$'),
    constraint payments_amount_set check ((amount is null) = (currency is null)),
    constraint payments_outcome_known check (outcome in ('waiting', 'paid', 'refund_due', 'refused', 'repeated')),
    constraint payments_reason_set check ((reason <> '') = (outcome in ('refused', 'refund_due'))),
    constraint payments_money_set check (
        outcome = 'refused' or (payment_id <> '' and sale_id <> '' and order_id is not null)
    ),
    constraint payments_decided_at_set check ((decided_at is null) = (outcome = 'waiting')),
    constraint payments_actor_bounds check (octet_length(actor) between 1 and 128)
);

-- The same money counts once, however often and under whatever webhook id it is reported.
create unique index payments_money_key on payments (payment_id) where outcome in ('waiting', 'paid', 'refund_due');

-- What waits for its order to be stored, oldest first; as small as the backlog.
create index payments_waiting_idx on payments (id) where outcome = 'waiting';

-- The payments of one order.
create index payments_order_idx on payments (order_id);
