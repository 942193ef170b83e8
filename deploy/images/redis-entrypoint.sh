#!/bin/sh
# First process of the Redis image that deploy/local-images.sh makes. It stands in for the official image: the same
# arguments (`redis-server /path/to.conf`, options alone, or any other command), the same volume, an unprivileged server.
set -eu

case "${1:-}" in
-* | *.conf) set -- redis-server "$@" ;;
esac
[ "${1:-}" = redis-server ] || exec "$@"

# A named or anonymous volume may belong to root. Only root can hand it over, and root must not run the server.
if [ "$(id -u)" = 0 ]; then
	chown -R redis:redis .
	exec setpriv --reuid=redis --regid=redis --clear-groups "$0" "$@"
fi

shift
case "${1:-}" in
-v | --version | -h | --help) exec redis-server "$@" ;;
esac

config=
case "${1:-}" in
'' | -*) ;;
*)
	config=$1
	shift
	;;
esac

# Distribution builds serve only loopback until told otherwise, which in a container means nobody.
if [ -z "$config" ] || ! grep -qi '^[[:space:]]*protected-mode' "$config"; then
	set -- --protected-mode no "$@"
fi
exec redis-server ${config:+"$config"} "$@"
