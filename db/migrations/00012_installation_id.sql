-- +goose Up

-- Names this database's installation to Redis, so that no Redis is used with two databases: a worker of the other one
-- would find none of the sales here, and bury accepted orders as unknown. Made once, and never changed; a copy of the
-- database that is to run beside the original needs another one.
--
-- A table of its own, because installation has no row before the number of partitions is fixed, and reading the id must
-- not fix it.
create table installation_id (
    single boolean not null default true,
    id     uuid    not null default gen_random_uuid(),

    constraint installation_id_pkey primary key (single),
    constraint installation_id_single_true check (single)
);

insert into installation_id default values;
