# The supervisor of one sandbox: waits until the process that opened the sandbox lets go of it, then ends everything
# that still runs in it and removes it. It is the only process that survives a SIGKILL of that process, so it always
# does all the cleaning up.
#
# $1     the sandbox's directory.
# stdin  the read end of a pipe whose write end only the opening process has. It reports what runs ("started NAME PID",
#        "ended NAME PID"); end of file means that the process has closed the sandbox or died.
#
# That process can't report what it started a moment before it dies. So every process of the sandbox also writes its
# process id into NAME.pid and then looks for the file `open` before it becomes what it should run (process.go).
# Removing `open` before reading the ids leaves no gap: a process is either listed or finds the sandbox closed.
sandbox=$1
PATH=$PATH:/usr/bin:/bin:/usr/sbin:/sbin
trap '' HUP INT TERM # the opening process handles a ctrl-C
cd / || exit 1

nap() { sleep 0.05 2>/dev/null || sleep 1; }

running= # NAME:PID …
while read -r what name pid; do
	case $what in
	started) running="$running $name:$pid" ;;
	ended)
		others=
		for one in $running; do
			[ "$one" = "$name:$pid" ] || others="$others $one"
		done
		running=$others
		;;
	esac
done

rm -f "$sandbox/open"

for file in "$sandbox"/*.pid; do
	pid=$(cat "$file" 2>/dev/null)
	[ -z "$pid" ] || running="$running $(basename "$file" .pid):$pid"
done
for file in "$sandbox"/*.paused; do
	# shellcheck disable=SC2046 # a list of process ids
	kill -CONT $(cat "$file" 2>/dev/null) 2>/dev/null
done

for one in $running; do
	pid=${one#*:}
	case $one in
	# Postgres ends its own children and removes its shared memory, but not while it is paused.
	postgres:*) kill -QUIT "$pid" && kill -CONT "$pid" ;;
	*) kill -KILL "$pid" ;;
	esac 2>/dev/null
done

# 10 s: twice as long as Postgres itself waits for its children before it kills them.
pid=$(cat "$sandbox/postgres.pid" 2>/dev/null)
if [ -n "$pid" ]; then
	naps=0
	while [ -e "$sandbox/postgres/data/postmaster.pid" ] && kill -0 "$pid" 2>/dev/null && [ "$naps" -lt 200 ]; do
		naps=$((naps + 1))
		nap
	done
	kill -KILL "$pid" 2>/dev/null
fi

# A Postgres that was killed leaves a small System V shared memory segment, of which a machine has a few thousand. Line
# 7 of its lock file names it: key, id.
segment=$(sed -n '7s/^ *[0-9-]* *\([0-9]*\).*$/\1/p' "$sandbox/postgres/data/postmaster.pid" 2>/dev/null)
[ -z "$segment" ] || ipcrm -m "$segment" 2>/dev/null

# A dying process may still write a file, so one pass may not be enough.
naps=0
until rm -rf "$sandbox" 2>/dev/null; [ ! -e "$sandbox" ] || [ "$naps" -ge 200 ]; do
	naps=$((naps + 1))
	nap
done
