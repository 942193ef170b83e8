-- +goose NO TRANSACTION
-- +goose Up

-- What keeps orders from being dropped, and what is dropped by its age. Built concurrently, see 00023_operator_search.sql.
-- None of them has a row of a payment that simply pays its order, so that those cost what they did.
set lock_timeout = 0;

-- Money that is due, of each sale and order.
drop index concurrently if exists payments_due_idx;
create index concurrently payments_due_idx on payments (sale_id, order_id) where outcome in ('waiting', 'refund_due');

-- Reports that changed nothing, the oldest first.
drop index concurrently if exists payments_refused_idx;
create index concurrently payments_refused_idx on payments (received_at) where outcome in ('refused', 'repeated');
drop index concurrently if exists refunds_unmatched_idx;
create index concurrently refunds_unmatched_idx on refunds (received_at) where payment is null;

-- The dead letters of a sale.
drop index concurrently if exists dead_letters_sale_idx;
create index concurrently dead_letters_sale_idx on dead_letters (sale_id);

reset lock_timeout;
