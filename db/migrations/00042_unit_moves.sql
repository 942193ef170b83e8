-- +goose Up

-- Units of a sale on their way from one of its partitions to another (docs/decisions/0044-units-on-the-move.md). Each
-- move has a number, counted by the sale's row, which is locked meanwhile: so numbers are committed in their order, and
-- none can appear below one that is known to have ended.
alter table sales
    add column moves bigint not null default 0, -- the number of the latest one
    add constraint sales_moves_positive check (moves >= 0);

create table unit_moves (
    sale_id        text collate "C" not null,
    number         bigint           not null,
    from_partition smallint         not null,
    to_partition   smallint         not null,
    wanted         bigint           not null,           -- units, at most
    units          bigint           not null default 0, -- that were taken
    state          text             not null default 'intended',
    changed_at     timestamptz      not null default now(),

    constraint unit_moves_pkey primary key (sale_id, number),
    constraint unit_moves_number_positive check (number >= 1),
    constraint unit_moves_from_bounds check (from_partition between 0 and 63),
    constraint unit_moves_to_bounds check (to_partition between 0 and 63),
    constraint unit_moves_elsewhere check (from_partition <> to_partition),
    constraint unit_moves_wanted_positive check (wanted >= 1),
    constraint unit_moves_units_bounds check (units between 0 and wanted),
    constraint unit_moves_state_known check (state in ('intended', 'taken', 'given', 'void')),
    constraint unit_moves_units_taken check ((state in ('taken', 'given')) = (units > 0))
) with (fillfactor = 50); -- each row is updated twice: room for heap-only updates

-- Moves that have not ended are few, and all of them are looked for all the time.
create index unit_moves_under_way_idx on unit_moves (changed_at) where state in ('intended', 'taken');

-- What Redis must have counted of moves, like released; and how often a rebuild has decided what becomes of moves that
-- concern the partition: a Redis with another count was not rebuilt since.
alter table watermarks
    add column moved_in      bigint not null default 0,
    add column moved_out     bigint not null default 0,
    add column moves_settled bigint not null default 0;
