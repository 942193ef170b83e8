#!/bin/sh
# Starts a standby: a copy of the primary, made at the first start. Once it is promoted it stays what it is.
#
#   PRIMARY                         the server that it follows
#   POSTGRES_REPLICATION_PASSWORD   of the user `replicator`
set -eu

if [ "$(id -u)" = 0 ]; then
	mkdir -p "$PGDATA"
	chown -R postgres:postgres "$PGDATA" /var/run/postgresql
	exec setpriv --reuid=postgres --regid=postgres --clear-groups sh "$0" "$@"
fi

if [ ! -s "$PGDATA/PG_VERSION" ]; then
	export PGPASSWORD="$POSTGRES_REPLICATION_PASSWORD"
	# The name is what synchronous_standby_names asks for.
	pg_basebackup --pgdata "$PGDATA" --wal-method=stream --slot standby --write-recovery-conf \
		--dbname "host=$PRIMARY user=replicator application_name=standby"
	unset PGPASSWORD
	chmod 0700 "$PGDATA"
fi
unset POSTGRES_REPLICATION_PASSWORD
exec postgres "$@"
