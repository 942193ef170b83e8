#!/usr/bin/env bash
# Runs the tests against each supported version of Redis, Valkey and Postgres, as Debian ships them: `make test-versions`.
#
# Makes a tree of each Debian release with debootstrap, once, in TREES (default /var/cache/sluice-versions; 600 MB), and
# runs the tests inside it with this machine's Go. Needs root, debootstrap and Debian's packages; nothing else on the
# machine is touched. PACKAGES and TEST_ARGS choose and tune the tests. Exit code 1: some failed; the last lines say
# which.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
exec </dev/null

readonly trees=${TREES:-/var/cache/sluice-versions} mirror=${MIRROR:-http://deb.debian.org/debian}
readonly packages=${PACKAGES:-./...}
goroot=$(go env GOROOT) gomodcache=$(go env GOMODCACHE) gocache=$(go env GOCACHE)
readonly goroot gomodcache gocache

if [[ $(id -u) != 0 ]]; then
	echo "test-versions: needs root, to make Debian trees and run in them" >&2
	exit 1
fi
command -v debootstrap >/dev/null || apt-get install -y --no-install-recommends debootstrap

# tree makes the tree of a release, or finds it.
tree() {
	local release=$1 extra=$2
	if [[ ! -e $trees/$release/.complete ]]; then
		mkdir -p -- "$trees"
		rm -rf -- "${trees:?}/$release"
		debootstrap --variant=minbase \
			--include="redis-server,postgresql,ca-certificates,curl,gcc,git,libc6-dev,make,openssl,procps$extra" \
			"$release" "$trees/$release" "$mirror"
		touch "$trees/$release/.complete"
	fi
}

# inside runs a command in a tree, in a mount namespace of its own, so that nothing stays mounted.
inside() {
	local release=$1
	shift
	unshare --mount --propagation private -- bash -euc '
		root=$1 source=$2 goroot=$3 modules=$4 cache=$5
		shift 5
		bind() { mkdir -p "$root$1"; mount --bind "$1" "$root$1"; }
		for dir in "$source" "$goroot" "$modules" "$cache" /dev; do bind "$dir"; done
		mount -t proc proc "$root/proc"
		exec chroot "$root" "$@"
	' _ "$trees/$release" "$PWD" "$goroot" "$gomodcache" "$gocache" "$@"
}

# check runs the tests with one pair of servers.
check() {
	local release=$1 redis=$2
	inside "$release" env HOME=/root PATH="$goroot/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
		GOMODCACHE="$gomodcache" GOCACHE="$gocache" GOFLAGS=-buildvcs=false GOPROXY="$(go env GOPROXY)" \
		SLUICE_REDIS_SERVER="$redis" SLUICE_REQUIRE_SERVERS=1 bash -euc '
			cd "$1"
			echo "== $("$SLUICE_REDIS_SERVER" --version | cut -d" " -f1-3), Postgres $(ls /usr/lib/postgresql)"
			go test -timeout 40m $3 $2
		' _ "$PWD" "$packages" "${TEST_ARGS:-}"
}

tree bookworm ''
tree trixie ,valkey-server
failed=()
for pair in 'bookworm /usr/bin/redis-server' 'trixie /usr/bin/redis-server' 'trixie /usr/bin/valkey-server'; do
	# shellcheck disable=SC2086 # two words
	check $pair || failed+=("$pair")
done
if ((${#failed[@]})); then
	printf 'failed: %s\n' "${failed[@]}"
	exit 1
fi
echo 'test-versions: all passed'
