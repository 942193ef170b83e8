-- +goose Up

-- What an operator looks for in the history: the events of an order. Those of a sale, of a type or of a time are found
-- by reading the positions in turn.
create index outbox_order_idx on outbox (sale_id, order_id) where order_id is not null;

-- Events that an endpoint has passed and is to get once more, with the same id. A row is deleted when its event is
-- delivered. An event that is no longer kept, and an endpoint that is removed, take their rows with them.
create table resends (
    endpoint_id  bigint      not null,
    position     bigint      not null,
    event        bigint      not null, -- outbox.id
    requests     integer     not null default 1, -- a delivery that began before the latest one does not count for it
    requested_at timestamptz not null default now(),

    constraint resends_pkey primary key (endpoint_id, position),
    constraint resends_endpoint_registered foreign key (endpoint_id) references endpoints on delete cascade,
    constraint resends_event_kept foreign key (event) references outbox on delete cascade
);

-- For the second of the two.
create index resends_event_idx on resends (event);
