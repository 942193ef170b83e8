#!/bin/sh
# First process of the Postgres image that deploy/local-images.sh makes. It stands in for the official image: the same
# variables (POSTGRES_USER, POSTGRES_PASSWORD or POSTGRES_PASSWORD_FILE, POSTGRES_DB, POSTGRES_INITDB_ARGS,
# POSTGRES_HOST_AUTH_METHOD, PGDATA), the same arguments, the same files in /docker-entrypoint-initdb.d, an unprivileged
# server, and the same order of events at the first start: a server that nobody can reach over the network prepares the
# database and stops, then the real one starts. Who waits for the second "ready to accept connections" can rely on that.
set -eu

case "${1:-}" in
'' | -*) set -- postgres "$@" ;;
esac
[ "$1" = postgres ] || exec "$@"

# A named or anonymous volume may belong to root. Only root can hand it over, and Postgres refuses to run as root.
if [ "$(id -u)" = 0 ]; then
	mkdir -p "$PGDATA" /var/run/postgresql
	chown -R postgres:postgres "$PGDATA" /var/run/postgresql
	exec setpriv --reuid=postgres --regid=postgres --clear-groups "$0" "$@"
fi

user=${POSTGRES_USER:-postgres}
database=${POSTGRES_DB:-$user}
network_auth=${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}

# password prints the superuser's password; nothing without one.
password() {
	if [ -n "${POSTGRES_PASSWORD_FILE:-}" ]; then
		cat "$POSTGRES_PASSWORD_FILE"
	else
		printf '%s' "${POSTGRES_PASSWORD:-}"
	fi
}

# create_cluster makes the data directory. Local sockets need no password: only the container itself can reach them.
create_cluster() {
	secret=$(password)
	if [ -z "$secret" ] && [ "$network_auth" != trust ]; then
		echo >&2 'POSTGRES_PASSWORD is not set: a database without a password would be open to the whole network'
		exit 1
	fi
	set -- --username="$user" --auth-local=trust --auth-host="$network_auth"
	[ -z "$secret" ] || set -- "$@" --pwfile=/dev/stdin
	# POSTGRES_INITDB_ARGS holds several options and is split on purpose.
	# shellcheck disable=SC2086
	printf '%s\n' "$secret" | initdb "$@" ${POSTGRES_INITDB_ARGS:-}
	printf '\nhost all all all %s\n' "$network_auth" >>"$PGDATA/pg_hba.conf"
}

run_sql() {
	psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username "$user" "$@"
}

# prepare runs on the first server: the database, then the files that the user of the image put there, by name.
prepare() {
	if [ "$database" != postgres ]; then
		echo 'create database :"name";' | run_sql --dbname postgres --set name="$database"
	fi
	for file in /docker-entrypoint-initdb.d/*; do
		case "$file" in
		*.sh) sh "$file" ;;
		*.sql) run_sql --dbname "$database" --file "$file" ;;
		esac
	done
}

# PG_VERSION exists in every initialised data directory, and such a directory is only served, never changed.
if [ ! -s "$PGDATA/PG_VERSION" ]; then
	create_cluster
	pg_ctl -w start -o "-c listen_addresses=''"
	prepare
	pg_ctl -w -m fast stop
	echo 'PostgreSQL init process complete; ready for start up.'
fi
unset POSTGRES_PASSWORD POSTGRES_PASSWORD_FILE

exec "$@"
