-- +goose Up

-- The tokens of operators. The text of a token is stored nowhere: it has 256 random bits, so its plain SHA-256 tells
-- nothing about it.
create table operator_tokens (
    id         text collate "C" not null, -- a part of the token's text
    name       text collate "C" not null, -- whose it is, for the audit log; a person may have several
    role       text             not null,
    hash       bytea            not null, -- SHA-256 of the whole text
    created_at timestamptz      not null default now(),
    created_by text             not null,
    expires_at timestamptz      not null,
    revoked_at timestamptz,
    revoked_by text,

    constraint operator_tokens_pkey primary key (id),
    constraint operator_tokens_id_form check (id ~ '^[a-z2-7]{16}$'),
    constraint operator_tokens_name_form check (name ~ '^[a-z0-9][a-z0-9._@-]{0,63}$'),
    constraint operator_tokens_role_known check (role in ('read', 'operate', 'admin')),
    constraint operator_tokens_hash_length check (octet_length(hash) = 32),
    constraint operator_tokens_life check (expires_at > created_at),
    constraint operator_tokens_revoked_whole check ((revoked_at is null) = (revoked_by is null))
);

-- The list, by name.
create index operator_tokens_name_idx on operator_tokens (name, created_at);
