#!/bin/sh
# Runs once, when the database of the primary is made: the user as which the standby follows it, and settings for when it
# starts for good. The server that runs here must not wait for a standby yet.
set -eu

psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
	--set password="$POSTGRES_REPLICATION_PASSWORD" <<'SQL'
create role replicator login replication password :'password';
select pg_create_physical_replication_slot('standby');
alter system set synchronous_standby_names = 'standby';
-- A standby that stays away must not fill the disk.
alter system set max_slot_wal_keep_size = '4GB';
SQL
echo 'host replication replicator all scram-sha-256' >>"$PGDATA/pg_hba.conf"
