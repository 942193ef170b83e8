-- +goose Up

-- Units of returned orders that do not go on sale again (the thing came back broken, or went to somebody else). They are
-- in no live order and not in stock, and the total stays what it was: total = stock + live + in flight + withdrawn
-- (docs/decisions/0025-returns.md).
alter table sales
    add column withdrawn bigint not null default 0,
    add constraint sales_withdrawn_bounds check (withdrawn >= 0),
    -- No oversell (I1): what is withdrawn can't be sold again, whatever Redis believes. Checks run in the order of their
    -- names: where sales_sold_within_total is broken too, that one is reported.
    add constraint sales_withdrawn_within_total check (sold + withdrawn <= total);

-- The same units by partition of Redis: a rebuild of one partition leaves them out of its stock.
alter table watermarks
    add column withdrawn bigint not null default 0,
    add constraint watermarks_withdrawn_positive check (withdrawn >= 0);

-- True: the release frees the buyer's slot, and its units stay withdrawn.
alter table releases add column withdrawn boolean not null default false;

-- Sold out is when nothing is left to sell.
drop trigger sales_announce_sold_out on sales;
create trigger sales_announce_sold_out after update on sales
    for each row when (new.sold + new.withdrawn = new.total and old.sold + old.withdrawn < old.total)
    execute function announce_sold_out();
