-- +goose Up

-- What the URLs of event streams are signed with: one secret for all apis of the installation. It is made here, so that
-- no operator has to make one, hand it to every api and keep it. A user who can read it can read every order too, so it
-- protects nothing more than this database does. `update stream_key set secret = default`, and a restart of the apis,
-- makes another one. Each UUID has 122 bits from the server's strong random source.
create table stream_key (
    single     boolean     not null default true,
    secret     bytea       not null default sha256(convert_to(
        gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')),
    created_at timestamptz not null default now(),

    constraint stream_key_pkey primary key (single),
    constraint stream_key_single_true check (single),
    constraint stream_key_secret_bounds check (octet_length(secret) = 32)
);

insert into stream_key default values;
