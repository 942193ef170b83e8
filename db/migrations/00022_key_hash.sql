-- +goose Up

-- The hash of the Idempotency-Key of an order; empty where the request had none. Redis answers with it, and it is here
-- for a rebuild: a key answers with its order whatever became of the order, and of Redis.
alter table orders add column key_hash text collate "C" not null default ''
    constraint orders_key_hash_bounds check (octet_length(key_hash) <= 64);
