# Installs packages with apt-get, as root, and starts no service: not now, and not at the next boot.
#
# $1  the root of the file system that it works on: "" for the real one, a directory in tests.
# $2… the packages.
#
# Debian starts what it installs, on the well-known ports. Unless that is forbidden already, a temporary policy-rc.d
# that answers 101 ("not allowed") prevents it. RUNLEVEL=1 has the same effect on packages that do not ask the policy.
set -eu
root=$1
shift
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1

policy=$root/usr/sbin/policy-rc.d
mark='# Temporary, by "make setup" of Sluice while it installs servers. Remove it if you find it.'
clusters=$root/etc/postgresql-common/createcluster.d
redis_was=$(dpkg-query -W -f '${db:Status-Status}' redis-server 2>/dev/null) || redis_was=absent

tidy() {
	if grep -qxF "$mark" "$policy" 2>/dev/null; then rm -f "$policy"; fi
	rm -f "$clusters/sluice.conf"
	rmdir "$clusters" "${clusters%/*}" 2>/dev/null || : # what the packages filled stays
}
trap tidy EXIT
trap 'exit 1' HUP INT TERM

# A leftover of ours (after a loss of power) counts as none.
if [ ! -e "$policy" ] || grep -qxF "$mark" "$policy"; then
	printf '#!/bin/sh\n%s\nexit 101\n' "$mark" >"$policy"
	chmod 755 "$policy"
fi
# No system cluster either: it would listen on port 5432 from the next boot on.
mkdir -p "$clusters"
echo 'create_main_cluster = false' >"$clusters/sluice.conf"

apt-get update
apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=120 "$@"

# The package enables its service. That stays so if the package was installed before; otherwise the service is not
# wanted.
if [ "$redis_was" != installed ] && command -v systemctl >/dev/null; then
	systemctl disable redis-server.service || :
fi
