#!/bin/sh
# Starts a sentinel.
#
#   PRIMARY                  the address of the server that is the primary at the very first start
#   REDIS_SENTINEL_PASSWORD  of the user `sentinel` of the servers
#
# A sentinel rewrites its configuration with what it learns, so it lies on the volume. A password is written again at
# each start.
set -eu
umask 077

conf=/data/sentinel.conf
if [ ! -s "$conf" ]; then
	{
		echo 'port 26379'
		echo 'dir /data'
		echo 'protected-mode no'
		echo "sentinel monitor sluice $PRIMARY 6379 2" # two of three must agree
		# How long a primary may be away: a pause of the machine, or of a disk, is shorter.
		echo 'sentinel down-after-milliseconds sluice 5000'
		echo 'sentinel failover-timeout sluice 30000'
		echo 'sentinel auth-user sluice sentinel'
	} >"$conf.new"
else
	grep -v '^sentinel auth-pass ' "$conf" >"$conf.new"
fi
echo "sentinel auth-pass sluice $REDIS_SENTINEL_PASSWORD" >>"$conf.new"
mv "$conf.new" "$conf"
unset REDIS_SENTINEL_PASSWORD
exec redis-server "$conf" --sentinel
