#!/usr/bin/env bash
# Makes the stack's images out of this machine's own files, for a machine that runs a Docker engine but reaches no
# registry: Redis and Postgres from the installed packages, Sluice from its source with the local Go.
#
#   deploy/local-images.sh [redis] [postgres] [sluice]     default: all three
#
# The images are sluice-local/redis, sluice-local/postgres and sluice:dev. docker-compose.yml takes the first two through
# REDIS_IMAGE and POSTGRES_IMAGE, which are added to the .env beside it unless it names others (ENV_FILE=none: nowhere),
# and the tests through TEST_REDIS_IMAGE and TEST_POSTGRES_IMAGE. What the tests'
# library needs beside them without a registry, and where it takes this machine for a container (/.dockerenv exists):
#
#   TEST_SERVERS=containers TESTCONTAINERS_RYUK_DISABLED=true TESTCONTAINERS_HOST_OVERRIDE=127.0.0.1 go test ./...
#
# Other binaries: REDIS_SERVER=/path/to/valkey-server, POSTGRES_BIN=/path/to/bin. VERSION is what Sluice says it is.
#
# An image that was made from the same files is left alone. Nothing on the machine is started, stopped or installed,
# and root is not needed. The images hold the machine's C library and are meant for that machine: do not publish them.
set -euo pipefail
shopt -s inherit_errexit nullglob

deploy=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
readonly deploy root=${deploy%/*}

# The users of the official images have this id too, so a volume can change hands between the two kinds.
readonly server_uid=999
# Nobody's id in the images without a shell; the number that distroless images use.
readonly sluice_uid=65532
# What the entrypoints, health checks and the port check of testcontainers run.
readonly shell_tools=(sh awk cat chmod chown env grep id ls mkdir mv rm setpriv sleep)
# Holds the fingerprint of the files an image was made from.
readonly label=sluice.inputs

work=$(mktemp -d "${TMPDIR:-/tmp}/sluice-images.XXXXXX")
readonly work
trap 'rm -rf "$work"' EXIT

say() { printf '%s\n' "$*"; }

fail() {
	printf 'local-images: %s\n' "$*" >&2
	exit 1
}

# tool_paths prints where the shell tools are. sh stays at /bin/sh, where every script looks for it.
tool_paths() {
	local tool
	for tool in "${shell_tools[@]}"; do
		[[ $tool == sh ]] && say /bin/sh && continue
		type -P "$tool" || fail "$tool is not installed"
	done
}

# with_libraries reads file names and prints them together with every shared library and loader they need.
with_libraries() {
	local files
	mapfile -t files
	printf '%s\n' "${files[@]}"
	# ldd fails for a file without dynamic linking (a script, a static binary), which is no failure here.
	{ ldd "${files[@]}" 2>/dev/null || true; } |
		awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// && $2 ~ /^\(0x/ { print $1 }'
	# The loader's own index: without it libraries outside of the standard directories are not found.
	say /etc/ld.so.cache
}

# fingerprint reads file names and prints one hash over names, sizes and times, and over whatever makes the image.
fingerprint() {
	{
		xargs -d '\n' stat -L -c '%n %s %Y'
		cat "$deploy/local-images.sh" "$deploy"/images/*
	} | sha256sum | cut -d' ' -f1
}

# is_current TAG FINGERPRINT: was this image made from these files?
is_current() {
	[[ $(docker image inspect -f "{{index .Config.Labels \"$label\"}}" "$1" 2>/dev/null || true) == "$2" ]]
}

# import TAG FINGERPRINT TAR CHANGE...: makes the image. An import needs neither a builder nor a base image. Images of ours
# that lost their name to a newer one go, unless a container still uses them.
import() {
	local tag=$1 hash=$2 archive=$3 change changes=() old
	shift 3
	for change in "LABEL $label=$hash" "$@"; do changes+=(--change "$change"); done
	docker import "${changes[@]}" "$archive" "$tag" >/dev/null
	for old in $(docker image ls --quiet --filter dangling=true --filter "label=$label"); do
		docker image rm "$old" >/dev/null 2>&1 || true
	done
}

# make_server NAME VERSION DATA CHANGE...: makes sluice-local/NAME from the files listed in $work/NAME.files and from
# what is prepared in $work/NAME. DATA are the directories that belong to the server, so that a volume mounted there does
# too.
make_server() {
	local name=$1 version=$2 data=$3 hash stage="$work/$1" began=$SECONDS
	shift 3
	hash=$(fingerprint <"$work/$name.files")
	if is_current "sluice-local/$name" "$hash"; then
		say "sluice-local/$name: unchanged ($version)"
		return
	fi

	mkdir -p "$stage/etc" "$stage/tmp" "$stage/usr/local/bin"
	chmod 1777 "$stage/tmp"
	sed 's,^/,,' "$work/$name.files" | sort -u | tar -C / -chf - -T - | tar -C "$stage" -xf -
	printf 'root:x:0:0::/root:/bin/sh\n%s:x:%d:%d::/:/bin/sh\n' "$name" "$server_uid" "$server_uid" >"$stage/etc/passwd"
	printf 'root:x:0:\n%s:x:%d:\n' "$name" "$server_uid" >"$stage/etc/group"
	install -m 755 "$deploy/images/$name-entrypoint.sh" "$stage/usr/local/bin/docker-entrypoint.sh"

	local archive="$work/$name.tar" directories
	read -ra directories <<<"$data"
	tar -C "$stage" --owner=0 --group=0 --numeric-owner -cf "$archive" .
	(cd "$work" && mkdir -p data && cd data && mkdir -p "${directories[@]}")
	tar -C "$work/data" --owner=$server_uid --group=$server_uid --numeric-owner --no-recursion -rf "$archive" "${directories[@]}"
	import "sluice-local/$name" "$hash" "$archive" 'ENTRYPOINT ["docker-entrypoint.sh"]' "$@"
	say "sluice-local/$name: made from $version ($((SECONDS - began)) s)"
}

make_redis() {
	local server client version bin=usr/local/bin
	server=${REDIS_SERVER:-$(type -P redis-server valkey-server | head -1 || true)}
	[[ -x $server ]] || fail 'no redis-server or valkey-server here: apt-get install redis-server, or set REDIS_SERVER'
	client=$(dirname "$server")/$(basename "${server/%-server/-cli}")
	[[ -x $client ]] || fail "no $client beside $server"
	version=$("$server" --version)

	mkdir -p "$work/redis/$bin"
	# Whatever the server is called here, the image answers to the names of the official one.
	[[ $server -ef /usr/bin/redis-server ]] || ln -s "$server" "$work/redis/$bin/redis-server"
	[[ $client -ef /usr/bin/redis-cli ]] || ln -s "$client" "$work/redis/$bin/redis-cli"
	{
		tool_paths
		say "$server"
		say "$client"
	} | with_libraries >"$work/redis.files"
	version=${version#*v=}
	make_server redis "Redis ${version%% *}" data \
		'CMD ["redis-server"]' 'WORKDIR /data' 'VOLUME /data' 'EXPOSE 6379'
}

# newest_postgres prints the directory with the programs of the newest Postgres that is installed.
newest_postgres() {
	local initdb
	initdb=$(printf '%s\n' /usr/lib/postgresql/*/bin/initdb | sort -V | tail -1)
	[[ -n $initdb ]] || initdb=$(type -P initdb || true)
	[[ -z $initdb ]] || dirname "$(readlink -f "$initdb")"
}

make_postgres() {
	local bin lib share locale version sample path
	bin=${POSTGRES_BIN:-$(newest_postgres)}
	[[ -x $bin/initdb ]] || fail 'no Postgres server here: apt-get install postgresql, or set POSTGRES_BIN'
	[[ -x $bin/pg_config ]] || fail "no $bin/pg_config, which tells where the other files are"
	lib=$("$bin/pg_config" --pkglibdir)
	share=$("$bin/pg_config" --sharedir)
	locale=/usr/lib/locale/C.utf8
	version=$("$bin/postgres" --version | cut -d' ' -f3)

	# llvmjit needs the whole of LLVM; without the module Postgres interprets, as it does for short queries anyway.
	{
		{
			tool_paths
			type -P locale || true
			printf '%s\n' "$bin"/*
			printf '%s\n' "$lib"/*.so | grep -v '/llvmjit\.so$'
		} | with_libraries
		find "$share" /usr/share/zoneinfo "$locale" -path "$share/man" -prune -o ! -type d -print
	} >"$work/postgres.files"

	# A server in a container listens to the network; the access rules ask for the password.
	sample="$work/sample/$share/postgresql.conf.sample"
	mkdir -p "$(dirname "$sample")"
	{
		cat "$share/postgresql.conf.sample"
		say "listen_addresses = '*'"
	} >"$sample"
	grep -v "^$share/postgresql.conf.sample\$" "$work/postgres.files" >"$work/kept" && mv "$work/kept" "$work/postgres.files"
	mkdir -p "$work/postgres/docker-entrypoint-initdb.d" "$work/postgres$share"
	cp "$sample" "$work/postgres$share/"

	path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$bin
	make_server postgres "Postgres $version" 'var/lib/postgresql var/lib/postgresql/data var/run/postgresql' \
		'CMD ["postgres"]' 'VOLUME /var/lib/postgresql/data' 'EXPOSE 5432' \
		"ENV PATH=$path" 'ENV PGDATA=/var/lib/postgresql/data' 'ENV LANG=C.UTF-8'
}

make_sluice() {
	local hash stage="$work/sluice" began=$SECONDS certificates=/etc/ssl/certs/ca-certificates.crt
	type -P go >/dev/null || fail 'no Go here to build Sluice with'
	mkdir -p "$stage/usr/local/bin" "$stage/etc/ssl/certs"
	# As in the Dockerfile.
	(cd "$root" && CGO_ENABLED=0 go build -trimpath -buildvcs=false \
		-ldflags "-s -w -X sluice/internal/process.Version=${VERSION:-dev}" \
		-o "$stage/usr/local/bin/" ./cmd/api ./cmd/worker ./cmd/sluice)
	if [[ -r $certificates ]]; then
		cp "$certificates" "$stage$certificates"
	else
		say 'sluice:dev: no certificate authorities found here; TLS connections to the outside will fail'
	fi

	hash=$(cd "$stage" && find . -type f -exec sha256sum {} + | sort | sha256sum | cut -d' ' -f1)
	if is_current sluice:dev "$hash"; then
		say "sluice:dev: unchanged ($((SECONDS - began)) s)"
		return
	fi
	tar -C "$stage" --owner=0 --group=0 --numeric-owner -cf "$work/sluice.tar" .
	# An api's accept journal, of its user: a volume that is mounted there takes its owner from the image.
	mkdir -p "$work/state/var/lib/sluice"
	tar -C "$work/state" --owner=$sluice_uid --group=$sluice_uid --numeric-owner -rf "$work/sluice.tar" ./var/lib/sluice
	import sluice:dev "$hash" "$work/sluice.tar" \
		"USER $sluice_uid:$sluice_uid" 'CMD ["sluice", "--help"]' 'ENV PATH=/usr/local/bin'
	say "sluice:dev: built with $(go env GOVERSION) ($((SECONDS - began)) s)"
}

# use NAME: has compose take the image of this name from now on.
use() {
	local variable=${1^^}_IMAGE file=${ENV_FILE:-$root/.env}
	[[ $file != none ]] || return 0
	if ! grep -qs "^$variable=" "$file"; then
		say "$variable=sluice-local/$1" >>"$file"
		say "$file: added $variable=sluice-local/$1"
	fi
}

main() {
	local image
	[[ $# -gt 0 ]] || set -- redis postgres sluice
	for image in "$@"; do
		[[ $image =~ ^(redis|postgres|sluice)$ ]] || fail "unknown image $image: redis, postgres, sluice"
	done
	docker version >/dev/null 2>&1 || fail 'no Docker engine answers'
	for image in "$@"; do
		"make_$image"
		[[ $image == sluice ]] || use "$image"
	done
}

main "$@"
