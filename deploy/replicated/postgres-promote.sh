#!/bin/sh
# Makes this standby the primary, once the one that it followed is stopped for good. Its commits wait for no standby until
# it has one of its own: `alter system set synchronous_standby_names` then.
set -eu

psql --no-psqlrc --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
alter system set synchronous_standby_names = '';
select pg_reload_conf();
select pg_promote();
SQL
