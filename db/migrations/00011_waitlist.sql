-- +goose Up

-- The most buyers that may wait for units of a sale once it is sold out; 0: it has no waitlist. The limit is
-- pipeline.MaxWaitlist.
alter table sales
    add column waitlist integer not null default 0,
    add constraint sales_waitlist_bounds check (waitlist between 0 and 1000000);

-- The buyers who wait, or waited. Redis decides and serves; these are the answers that buyers got, from which the list
-- is rebuilt when Redis has lost it. A row is one entry in the list. It has ended where left_at is set, or where orders
-- has a row of this id: the order that was made when the buyer's turn came. So nothing is written here when a unit is
-- handed over.
--
-- Every join and every leave takes a ticket from one counter of the sale on its partition: a Redis that counts fewer
-- than the highest here has lost some of them. No foreign keys, for the reason given at orders.
create table waitlist (
    sale_id      text collate "C" not null,
    order_id     uuid             not null, -- of the order that will be made
    user_id      text collate "C" not null,
    number       bigint           not null, -- its order number
    quantity     integer          not null, -- units
    partition    smallint         not null, -- of Redis; the tickets are counted there
    ticket       bigint           not null, -- the lower one is served first
    key_hash     text             not null default '', -- of the idempotency key; '' for none
    payload_hash text             not null default '',
    joined_at    timestamptz      not null, -- by Redis' clock
    left_at      timestamptz,
    left_ticket  bigint,

    constraint waitlist_pkey primary key (sale_id, order_id),
    constraint waitlist_ticket_key unique (sale_id, partition, ticket),
    constraint waitlist_user_id_bounds check (octet_length(user_id) between 1 and 128),
    constraint waitlist_number_positive check (number > 0),
    constraint waitlist_quantity_bounds check (quantity between 1 and 1000),
    constraint waitlist_partition_bounds check (partition between 0 and 63),
    constraint waitlist_tickets_positive check (ticket >= 1 and left_ticket >= 1),
    constraint waitlist_left_set check ((left_at is null) = (left_ticket is null))
);

-- A buyer's latest entry.
create index waitlist_buyer_idx on waitlist (sale_id, user_id, ticket desc);

-- The highest ticket of a leave; waitlist_ticket_key has that of a join.
create index waitlist_left_idx on waitlist (sale_id, partition, left_ticket) where left_ticket is not null;
