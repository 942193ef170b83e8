#!/bin/sh
# Starts a Redis that has replicas, or is one: for the Sentinel stack and the cluster beside this file.
#
#   REPLICA_OF              the server that it follows at its very first start (Sentinel); empty: none
#   CLUSTER                 yes: a node of a cluster; cluster-create.sh makes the cluster
#   MIN_REPLICAS            how many replicas must be in touch for it to accept writes
#   REDIS_REPLICA_PASSWORD  of the user `replica`, as which a replica signs in to its primary
#
# Its configuration lies beside the data, because Sentinel has Redis rewrite it: a server that was replaced must still
# know that when it comes back. Here only the password is written again, at each start.
set -eu
umask 077

conf=/data/server.conf
if [ ! -s "$conf" ]; then
	{
		echo 'include /etc/sluice/redis.conf'
		echo 'aclfile /etc/sluice/users/users.acl'
		echo "min-replicas-to-write ${MIN_REPLICAS:-0}"
		if [ "${CLUSTER:-}" = yes ]; then
			echo 'cluster-enabled yes'
			echo 'cluster-node-timeout 5000'
			echo 'cluster-require-full-coverage no' # a dead node closes its own sales only
		elif [ -n "${REPLICA_OF:-}" ]; then
			echo "replicaof $REPLICA_OF 6379"
		fi
	} >"$conf.new"
else
	grep -v -e '^masteruser ' -e '^masterauth ' "$conf" >"$conf.new"
fi
{
	echo 'masteruser replica'
	echo "masterauth $REDIS_REPLICA_PASSWORD"
} >>"$conf.new"
mv "$conf.new" "$conf"
unset REDIS_REPLICA_PASSWORD
exec redis-server "$conf"
