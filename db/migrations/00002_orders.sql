-- +goose Up

-- One accepted order. The sale id leads every key: ready for hash partitioning or a distributed Postgres. The one
-- exception is the number, which people read out without naming the sale.
--
-- There is no foreign key to sales, on purpose: each insert would take a share lock on the sale's row, which is the
-- hottest one there is, and queue behind the batch that updates it. The insert joins sales instead, so that an order of
-- an unknown sale finds no row to come from; and no code deletes a sale.
create table orders (
    sale_id      text collate "C" not null,
    id           uuid             not null, -- UUIDv7: new keys go to the right end of the index
    number       bigint,                    -- null only where it was taken, which rejects the order
    user_id      text collate "C" not null,
    quantity     integer          not null, -- units
    status       text             not null,
    reason       text             not null default '', -- why it was rejected
    partition    smallint         not null, -- of Redis; the accept counter below is counted there
    sequence     bigint           not null, -- the sale's accept counter after this accept
    accepted_at  timestamptz      not null, -- by Redis' clock
    persisted_at timestamptz      not null default now(),
    pay_by       timestamptz,               -- by this server's clock; null where no payment is due
    paid_at      timestamptz,
    payment_id   text,
    closed_at    timestamptz,               -- when it stopped being live

    constraint orders_pkey primary key (sale_id, id),
    constraint orders_number_key unique (number),
    constraint orders_number_positive check (number > 0),
    constraint orders_number_set check (number is not null or status = 'rejected'),
    constraint orders_user_id_bounds check (octet_length(user_id) between 1 and 128),
    constraint orders_quantity_bounds check (quantity between 1 and 1000),
    constraint orders_status_known check (status in (
        'awaiting_payment', 'confirmed', 'paid', 'cancelled', 'expired', 'rejected', 'refund_due'
    )),
    constraint orders_partition_bounds check (partition between 0 and 63),
    constraint orders_sequence_positive check (sequence >= 1),
    constraint orders_pay_by_set check (status <> 'awaiting_payment' or pay_by is not null),
    constraint orders_reason_set check (status <> 'rejected' or reason <> ''),
    constraint orders_closed_at_set check (
        (closed_at is null) = (status in ('awaiting_payment', 'confirmed', 'paid'))
    )
);

-- One live order per buyer and sale (I3). Insertion relies on it, and so does the lookup of a buyer's own order.
create unique index orders_live_buyer_key on orders (sale_id, user_id)
    where status in ('awaiting_payment', 'confirmed', 'paid');

-- A buyer's latest order once none is live. Only closed orders are in it, so that inserting one costs nothing here.
create index orders_closed_buyer_idx on orders (sale_id, user_id, accepted_at desc)
    where status in ('cancelled', 'expired', 'rejected', 'refund_due');

-- What to expire next: the job reads from its left end, the inserts append at its right end.
create index orders_pay_by_idx on orders (pay_by)
    where status = 'awaiting_payment';
