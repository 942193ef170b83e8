#!/bin/sh
# Makes six servers into a cluster of three primaries and three replicas, unless they are one.
#
#   NET                      the first three numbers of the servers' addresses
#   REDIS_CLUSTER_PASSWORD   of the user `cluster`
set -eu

export REDISCLI_AUTH="$REDIS_CLUSTER_PASSWORD"
readonly user='--no-auth-warning --user cluster'

is_whole() { redis-cli $user -h "$1" cluster info | grep -q '^cluster_state:ok'; }

if redis-cli $user -h "$NET.11" cluster info | grep -q '^cluster_known_nodes:1[^0-9]*$'; then
	redis-cli $user --cluster create "$NET.11:6379" "$NET.12:6379" "$NET.13:6379" "$NET.14:6379" "$NET.15:6379" \
		"$NET.16:6379" --cluster-replicas 1 --cluster-yes
fi
tries=0
for n in 11 12 13 14 15 16; do
	until is_whole "$NET.$n"; do
		tries=$((tries + 1))
		[ "$tries" -lt 120 ] || {
			echo >&2 "cluster-create: $NET.$n did not find the cluster whole within a minute"
			exit 1
		}
		sleep 0.5
	done
done
echo 'cluster-create: the cluster is whole'
