#!/usr/bin/env bash
# Prints the command that runs Docker Compose here, for deploy/compose-test.sh, in this order:
#
#   1. $COMPOSE, if set
#   2. `docker compose`, version 2 or later
#   3. version 2 built from source with the local Go, once, into the user's cache (about two minutes on two cores; it
#      needs the Go module proxy and no registry)
#   4. `docker-compose` 1.29, which can't wait for health by itself
set -euo pipefail

readonly version=v2.40.3
# What the Go checksum database says about that version. Pinned, so that the build means the same everywhere.
readonly checksum=h1:XeYkQu1svDtyfZPv5nTwFryQ25ZJMkIlc4pz9HalMPI=
# Far above what a busy machine needs; a proxy that never answers must not hang the test.
readonly build_limit=20m

cached=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/sluice/docker-compose-$version
readonly cached

say() { printf 'compose: %s\n' "$*" >&2; }

# build makes $cached. The source is copied because modules in Go's cache are read-only, and it is built as a module of
# its own because `go install` refuses a module with exclusions.
build() {
	local work module
	type -P go >/dev/null || return 1
	say "building Docker Compose $version from source, once"
	work=$(mktemp -d "${TMPDIR:-/tmp}/sluice-compose.XXXXXX")
	# shellcheck disable=SC2064 # the directory of now
	trap "rm -rf '$work'" EXIT
	module=$(cd "$work" && timeout "$build_limit" go mod download -json "github.com/docker/compose/v2@$version") || return 1
	if ! grep -qF "\"Sum\": \"$checksum\"" <<<"$module"; then
		say "the source of $version is not the one that is expected"
		return 1
	fi
	cp -r "$(sed -n 's/^[[:space:]]*"Dir": "\(.*\)",\{0,1\}$/\1/p' <<<"$module")" "$work/source"
	chmod -R u+w "$work/source"
	(cd "$work/source" && GOFLAGS=-buildvcs=false GOWORK=off CGO_ENABLED=0 timeout "$build_limit" nice -n 10 go build -trimpath \
		-ldflags "-s -w -X github.com/docker/compose/v2/internal.Version=$version" -o "$work/docker-compose" ./cmd) || return 1
	mkdir -p "$(dirname "$cached")"
	mv "$work/docker-compose" "$cached"
}

if [[ -n ${COMPOSE:-} ]]; then
	echo "$COMPOSE"
elif docker compose version >/dev/null 2>&1; then
	echo docker compose
elif [[ -x $cached ]] || build; then
	echo "$cached"
elif type -P docker-compose >/dev/null; then
	say 'version 2 is not here and could not be built; using docker-compose'
	echo docker-compose
else
	say 'no Docker Compose here, and it could not be built'
	exit 1
fi
