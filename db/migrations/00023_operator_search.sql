-- +goose NO TRANSACTION
-- +goose Up

-- What operators look for. An index that is built on a table in use is built concurrently, outside of a transaction:
-- orders are taken and stored meanwhile. It waits for transactions that began before it, and holds up nobody while it
-- does, so that the limit on waits for locks need not apply. A run that was broken off leaves an index that is not
-- valid; the next run makes it anew.
set lock_timeout = 0;

-- The orders of all sales, the newest first. Inserts append at its right end. Within a sale, orders_pkey serves: ids
-- begin with a time.
drop index concurrently if exists orders_accepted_idx;
create index concurrently orders_accepted_idx on orders (accepted_at, id);

-- Who did it, the newest first.
drop index concurrently if exists audit_log_actor_idx;
create index concurrently audit_log_actor_idx on audit_log (actor, id);

-- What it was done to: the order, the dead letter, the payment or the endpoint that the detail names.
drop index concurrently if exists audit_log_detail_idx;
create index concurrently audit_log_detail_idx on audit_log using gin (detail jsonb_path_ops);

reset lock_timeout;
