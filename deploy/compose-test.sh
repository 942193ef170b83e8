#!/usr/bin/env bash
# Puts a whole flash sale through the compose stack, kills one of two workers in the middle of it, and counts.
#
#   deploy/compose-test.sh                                        one Redis, one Postgres
#   deploy/compose-test.sh sentinel|cluster|postgres-pair         deploy/replicated/: a server is killed for good instead
#
# A project of its own on free ports, so that it disturbs no other stack; everything is removed at the end, however it
# ends. Exit code 0 means: the stack came up healthy, the load broke no rule, a worker was killed with orders in its
# hands, the other one took them over in time, Postgres holds exactly the orders that were accepted, as many as there was
# stock, and the audit is all zeros.
#
# With a server instead of a worker: another one takes its place in time, and the rest is the same.
#
# Images are made by deploy/local-images.sh unless REDIS_IMAGE, POSTGRES_IMAGE or SLUICE_IMAGE name them. COMPOSE names
# the command to use (deploy/compose-tool.sh).
set -Eeuo pipefail
shopt -s inherit_errexit
trap 'printf "compose-test: line %d failed: %s\n" "$LINENO" "$BASH_COMMAND" >&2' ERR

deploy=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
readonly deploy root=${deploy%/*}

readonly project=sluice-test-$$-$RANDOM
readonly sale=compose-drop
readonly partitions=16
# More buyers than units, and more requests than buyers: sold-out and already-ordered both happen.
readonly stock=5000 buyers=6000 requests=12000
# Workers have a batch in hand at any time, and a busy machine still keeps up.
readonly requests_per_s=1200
# How long the stack may take to be healthy. Postgres' first start on a busy machine is most of it.
readonly start_limit_s=240
# The promise is that a dead worker's orders are persisted within 20 s. What is looked at from outside is a little later.
readonly takeover_limit_s=20 looking_s=5
# For everything else that is waited for.
readonly wait_limit_s=60

# What is put on top of docker-compose.yml.
readonly replicated=${1:-}
compose_files=(--file "$root/docker-compose.yml")
[[ -z $replicated ]] || compose_files+=(--file "$deploy/replicated/$replicated.yml")
readonly compose_files

# Where Postgres takes writes; its standby after a fail-over.
postgres=postgres

work=$(mktemp -d "${TMPDIR:-/tmp}/sluice-compose-test.XXXXXX")
readonly work
load_pid=
killed_at=

say() { printf '%6.1fs  %s\n' "$(since 0)" "$*"; }

fail() {
	printf 'compose-test: %s\n' "$*" >&2
	exit 1
}

# now prints the time in microseconds.
now() { echo "${EPOCHREALTIME//[!0-9]/}"; }
began=$(now)
readonly began

# since FROM prints the seconds from then on; 0 is the start of the test.
since() {
	local from=$1
	[[ $from != 0 ]] || from=$began
	awk -v us=$(($(now) - from)) 'BEGIN { printf "%.1f", us / 1e6 }'
}

compose() { (cd "$root" && "${compose_command[@]}" --project-name "$project" "${compose_files[@]}" "$@"); }

finish() {
	local code=$?
	trap - EXIT INT TERM ERR
	set +e
	if [[ -n $load_pid ]]; then
		kill "$load_pid" 2>/dev/null
		wait "$load_pid" 2>/dev/null
	fi
	if [[ ${#compose_command[@]} -gt 0 ]]; then
		if [[ $code -ne 0 ]]; then
			echo '--- what the services said last ---'
			compose ps --all 2>/dev/null || compose ps
			compose logs --no-color --tail 60
		fi >&2
		compose down --volumes --remove-orphans --timeout 10 >"$work/down" 2>&1 || cat "$work/down" >&2
	fi
	rm -rf "$work"
	[[ $code -eq 0 ]] || echo 'compose-test: FAILED' >&2
	exit "$code"
}

# until_true WHAT SECONDS COMMAND...: polls until the command succeeds; fails the test when the time is over.
until_true() {
	local what=$1 deadline=$((SECONDS + $2))
	shift 2
	until "$@"; do
		((SECONDS < deadline)) || fail "not within the time allowed: $what"
		sleep 0.2
	done
}

sql() {
	# shellcheck disable=SC2016 # the variables are the container's
	compose exec -T "$postgres" sh -c 'psql --no-psqlrc -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d "$POSTGRES_DB" -At' <<<"$1"
}

sluice() { compose run --rm -T cli "$@"; }

persisted() { sql "select count(*) from orders where sale_id = '$sale'"; }
persisted_at_least() {
	local n
	n=$(persisted) && ((n >= $1))
}

# redis asks as an operator.
redis() { redis_as sluice-operator "$REDIS_OPERATOR_PASSWORD" "$@"; }

redis_as() {
	local user=$1 password=$2
	shift 2
	compose exec -T -e REDISCLI_AUTH="$password" redis redis-cli --user "$user" "$@"
}

# Asked of Redis itself and not of sluice, which is what is being tested. Consumers are named after their host, which in
# a container is the start of its id.
readonly held_script='
local orders = {}
for p = 0, ARGV[2] - 1 do
  local stream = string.format("sluice:{p%02d}:orders", p)
  local pending = redis.pcall("xpending", stream, "workers", "-", "+", 100000)
  if not pending.err then
    for _, entry in ipairs(pending) do
      if entry[2]:sub(1, #ARGV[1]) == ARGV[1] then
        local found = redis.call("xrange", stream, entry[1], entry[1])[1]
        local fields = found and found[2] or {}
        for i = 1, #fields, 2 do
          if fields[i] == "o" then orders[#orders + 1] = fields[i + 1] end
        end
      end
    end
  end
end
return orders'

# held_by HOST prints the ids of the orders whose events are in the hands of the worker on that host.
held_by() { redis EVAL "$held_script" 0 "$1-" "$partitions" | sed '/^$/d'; }

# count_persisted FILE prints how many of the orders in the file Postgres has.
count_persisted() {
	local ids
	ids=$(sed "s/.*/'&'/" "$1" | paste -sd,)
	sql "select count(*) from orders where sale_id = '$sale' and id in ($ids)"
}
all_persisted() { [[ $(count_persisted "$1") == $(wc -l <"$1") ]]; }

# nothing_left asks whether every stream is empty: settled events are deleted.
nothing_left() {
	local p
	for ((p = 0; p < partitions; p++)); do printf 'XLEN sluice:{p%02d}:orders\n' "$p"; done |
		redis | awk -v n="$partitions" '$1 == "0" { empty++ } END { exit empty != n }'
}

health_of() { docker inspect -f '{{.State.Health.Status}}' "$@" | sort -u; }
all_healthy() {
	local ids
	mapfile -t ids < <(compose ps -q redis && compose ps -q postgres && compose ps -q api && compose ps -q worker)
	[[ ${#ids[@]} == 5 && $(health_of "${ids[@]}") == healthy ]]
}

take_images() {
	local missing=()
	[[ -n ${REDIS_IMAGE:-} ]] || missing+=(redis)
	[[ -n ${POSTGRES_IMAGE:-} ]] || missing+=(postgres)
	[[ -n ${SLUICE_IMAGE:-} ]] || missing+=(sluice)
	[[ ${#missing[@]} -eq 0 ]] || ENV_FILE=none "$deploy/local-images.sh" "${missing[@]}"
	export REDIS_IMAGE=${REDIS_IMAGE:-sluice-local/redis} POSTGRES_IMAGE=${POSTGRES_IMAGE:-sluice-local/postgres}
	export SLUICE_IMAGE=${SLUICE_IMAGE:-sluice:dev}
}

# start brings the stack up with two workers, and returns when all of it is healthy.
start() {
	# Free ports, and our own names whatever the machine's environment says.
	export API_PORT='' ADMIN_PORT='' REDIS_PORT='' POSTGRES_PORT='' PARTITIONS=$partitions
	export POSTGRES_USER=sluice POSTGRES_DB=sluice POSTGRES_PASSWORD=compose-test
	export POSTGRES_API_PASSWORD=compose-test-pg-api POSTGRES_WORKER_PASSWORD=compose-test-pg-worker \
		POSTGRES_OPERATOR_PASSWORD=compose-test-pg-operator
	export REDIS_API_PASSWORD=compose-test-redis-api REDIS_WORKER_PASSWORD=compose-test-redis-worker \
		REDIS_OPERATOR_PASSWORD=compose-test-redis-operator
	export REDIS_REPLICA_PASSWORD=compose-test-redis-replica REDIS_SENTINEL_PASSWORD=compose-test-redis-sentinel \
		REDIS_CLUSTER_PASSWORD=compose-test-redis-cluster POSTGRES_REPLICATION_PASSWORD=compose-test-pg-replication
	export SLUICE_NET=172.30.$((1 + RANDOM % 250))
	export PAYMENT_WEBHOOK_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
	local from wait=(--wait --wait-timeout "$start_limit_s")
	from=$(now)
	[[ $(compose up --help 2>&1) == *--wait-timeout* ]] || wait=(-d)
	(cd "$root" && timeout "$((start_limit_s * 2))" "${compose_command[@]}" --project-name "$project" "${compose_files[@]}" \
		up "${wait[@]}" --scale worker=2) >"$work/up" 2>&1 || {
		cat "$work/up" >&2
		fail 'the stack did not come up'
	}
	until_true 'all services healthy' "$start_limit_s" all_healthy
	say "the stack is healthy after $(since "$from") s: redis, postgres, api and 2 workers"
}

# check_volumes fails if a container has a volume without a name of ours: each `down` would leave it behind.
check_volumes() {
	local containers stray
	mapfile -t containers < <(compose ps -q)
	stray=$(docker inspect -f '{{range .Mounts}}{{if eq .Type "volume"}}{{.Name}} at {{.Destination}}{{"\n"}}{{end}}{{end}}' \
		"${containers[@]}" | grep -v "^${project}_" | sed '/^$/d' || true)
	[[ -z $stray ]] || fail "anonymous volumes: $stray"
}

# check_settings fails if what is set for a service does not reach it.
check_settings() {
	local got
	got=$(docker inspect -f '{{join .Config.Env "\n"}}' "$(compose ps -q api)")
	grep -qx "PAYMENT_WEBHOOK_SECRET=$PAYMENT_WEBHOOK_SECRET" <<<"$got" || fail 'the api has no PAYMENT_WEBHOOK_SECRET'
}

# check_rights fails if a program may do more than it needs, or a stranger anything but ping.
check_rights() {
	local user got
	for user in api worker operator; do
		got=$(redis_as "sluice-$user" "compose-test-redis-$user" FLUSHALL)
		[[ $got == NOPERM* ]] || fail "FLUSHALL as $user: $got"
		got=$(compose exec -T -e PGPASSWORD="compose-test-pg-$user" postgres psql -h 127.0.0.1 -U "sluice_$user" -d sluice -c 'drop table orders' 2>&1 || true)
		[[ $got == *'must be owner of table orders'* ]] || fail "drop table as $user: $got"
	done
	got=$(compose exec -T redis redis-cli GET x)
	[[ $got == NOPERM* ]] || fail "without a password, GET: $got"
	say 'no program may drop a table or flush Redis, and a stranger may do nothing'
}

# check_refusals fails if Redis refused a program anything that it asked for.
check_refusals() {
	local stats
	stats=$(compose logs --no-color api worker | grep -c -e NOPERM -e 'permission denied' || true)
	[[ $stats == 0 ]] || fail "$stats lines of the logs say that a program was refused something"
}

# load lets the crowd in, in the background. It slows down in the middle and waits there for the kill, however slow this
# machine is.
load() {
	local api
	api=$(compose port api 8080)
	"$work/composeload" -api "http://$api" -sale "$sale" -buyers "$buyers" -requests "$requests" -rate "$requests_per_s" \
		-accepted "$work/accepted" -spur "$work/killed" >"$work/load" 2>&1 &
	load_pid=$!
}

still_loading() { kill -0 "$load_pid" 2>/dev/null; }

# freeze_with_orders CONTAINER HOST stops a worker in a moment in which it holds orders, and writes their ids into
# $work/held. Frozen, it can't finish them before the kill, so the kill is sure to leave some behind.
freeze_with_orders() {
	docker pause "$1" >/dev/null
	# Redis hands events to a reader that waits, frozen or not.
	local deadline=$((SECONDS + 2))
	while ((SECONDS < deadline)); do
		held_by "$2" >"$work/held"
		[[ ! -s $work/held ]] || return 0
	done
	docker unpause "$1" >/dev/null
	return 1
}

kill_a_worker() {
	local workers victim host state held early
	mapfile -t workers < <(compose ps -q worker)
	((${#workers[@]} == 2)) || fail "there are ${#workers[@]} workers, and two were asked for"
	victim=${workers[0]}
	host=${victim:0:12}
	until_true 'a worker holds orders' "$wait_limit_s" freeze_with_orders "$victim" "$host"
	docker kill --signal KILL "$victim" >/dev/null
	killed_at=$(now)
	state=$(docker inspect -f '{{.State.Status}} {{.State.ExitCode}}' "$victim")
	[[ $state == 'exited 137' ]] || fail "the worker $host was not killed: $state"
	still_loading || fail 'the load was over before the worker was killed: this proved nothing'
	held=$(wc -l <"$work/held")
	early=$(count_persisted "$work/held")
	say "worker $host killed with SIGKILL in mid-flow, $(persisted) of $stock orders persisted"
	say "it left $held orders pending, $((held - early)) of them not persisted"
	touch "$work/killed"

	until_true "the dead worker's orders persisted" "$((takeover_limit_s + looking_s))" all_persisted "$work/held"
	say "all of them persisted $(since "$killed_at") s after the kill (limit $takeover_limit_s s)"
}

# server_of_sale prints the service whose Redis has the sale: at the start, the primaries are the first three.
server_of_sale() {
	local service p
	for service in redis redis-2 redis-3; do
		for ((p = 0; p < partitions; p++)); do printf 'EXISTS sluice:{p%02d}:sale:%s\n' "$p" "$sale"; done |
			compose exec -T -e REDISCLI_AUTH="$REDIS_OPERATOR_PASSWORD" "$service" redis-cli --user sluice-operator >"$work/has"
		if grep -qx 1 "$work/has"; then
			echo "$service"
			return
		fi
	done
	fail 'no Redis has the sale'
}

# kill_a_server kills one that is a primary, never to come back, and has another one take its place.
kill_a_server() {
	local service container
	service=postgres
	[[ $replicated == postgres-pair ]] || service=$(server_of_sale)
	container=$(compose ps -q "$service")
	still_loading || fail 'the load was over before the server was killed: this proved nothing'
	say "$service is killed in mid-flow, $(persisted) of $stock orders persisted"
	docker kill --signal KILL "$container" >/dev/null
	killed_at=$(now)
	if [[ $service == postgres ]]; then
		postgres=postgres-2
		compose exec -T "$postgres" sh /etc/sluice/replicated/postgres-promote.sh >/dev/null
	fi
	touch "$work/killed"
	local before
	before=$(persisted)
	until_true 'orders are persisted again' "$wait_limit_s" persisted_at_least $((before + 500))
	say "orders are accepted and persisted again $(since "$killed_at") s after the kill"
}

wait_for_load() {
	local code=0
	wait "$load_pid" || code=$?
	load_pid=
	say "load: $(cat "$work/load")"
	[[ $code -eq 0 ]] || fail 'the load failed'
}

# check_counts holds Postgres against what buyers were answered.
check_counts() {
	local accepted rows
	accepted=$(wc -l <"$work/accepted")
	((accepted == stock)) || fail "$accepted orders were accepted, and $stock units were for sale"
	until_true 'all accepted orders in Postgres' "$wait_limit_s" persisted_at_least "$accepted"
	rows=$(persisted)
	((rows == stock)) || fail "Postgres has $rows orders for $stock units"
	sql "select id from orders where sale_id = '$sale'" | LC_ALL=C sort >"$work/rows"
	LC_ALL=C sort -o "$work/accepted" "$work/accepted"
	cmp -s "$work/accepted" "$work/rows" ||
		fail "Postgres has other orders than were accepted: $(LC_ALL=C comm -3 "$work/accepted" "$work/rows")"
	say "Postgres has exactly the $rows accepted orders"
	[[ -z $replicated ]] || return 0 # the audit has a look at all servers
	until_true 'all events settled' "$wait_limit_s" nothing_left
	say "all events are settled $(since "$killed_at") s after the kill"
}

main() {
	compose_command=()
	trap finish EXIT
	trap 'exit 130' INT TERM
	type -P docker >/dev/null || fail 'docker is not installed'
	local command
	command=$("$deploy/compose-tool.sh")
	take_images
	(cd "$root" && go build -o "$work/composeload" ./deploy/composeload)
	read -ra compose_command <<<"$command"
	say "$(compose version --short), project $project"

	start
	check_volumes
	check_settings
	check_rights
	sluice sale create --id "$sale" --title 'Compose drop' --stock "$stock" --opens now --closes +1h
	load
	until_true 'a tenth of the orders persisted' "$wait_limit_s" persisted_at_least $((stock / 10))
	if [[ -z $replicated ]]; then
		kill_a_worker
	else
		kill_a_server
	fi
	wait_for_load
	check_counts
	sluice workers
	sluice audit --sale "$sale" || fail 'the audit found something'
	check_refusals
	say 'PASSED'
}

main
