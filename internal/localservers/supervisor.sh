# The guardian of one den: waits until the process that opened the den lets go of it, then ends whatever still runs in it
# and removes it. It is the only thing that survives a SIGKILL of that process, so it does all the tidying, always.
#
# $1     the den's directory.
# stdin  the read end of a pipe whose write end only the opening process holds. It says what runs ("started NAME PID",
#        "ended NAME PID"); end of file means that it has closed the den or died.
#
# It can't say what it has started a moment before it dies. So every process of the den also writes its process id into
# NAME.pid and then looks for the file `open` before it becomes what it should run (process.go). Removing `open` before
# reading the ids leaves no gap: a process is either listed or finds the den closed.
den=$1
PATH=$PATH:/usr/bin:/bin:/usr/sbin:/sbin
trap '' HUP INT TERM # a ctrl-C is the opening process' to handle
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

rm -f "$den/open"

for file in "$den"/*.pid; do
	pid=$(cat "$file" 2>/dev/null)
	[ -z "$pid" ] || running="$running $(basename "$file" .pid):$pid"
done
for file in "$den"/*.paused; do
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
pid=$(cat "$den/postgres.pid" 2>/dev/null)
if [ -n "$pid" ]; then
	naps=0
	while [ -e "$den/postgres/data/postmaster.pid" ] && kill -0 "$pid" 2>/dev/null && [ "$naps" -lt 200 ]; do
		naps=$((naps + 1))
		nap
	done
	kill -KILL "$pid" 2>/dev/null
fi

# A Postgres that was killed hard leaves a small System V shared memory segment, of which a machine has a few thousand.
# Line 7 of its lock file names it: key, id.
segment=$(sed -n '7s/^ *[0-9-]* *\([0-9]*\).*$/\1/p' "$den/postgres/data/postmaster.pid" 2>/dev/null)
[ -z "$segment" ] || ipcrm -m "$segment" 2>/dev/null

# A process that is just dying may still write a file, so one pass may not be enough.
naps=0
until rm -rf "$den" 2>/dev/null; [ ! -e "$den" ] || [ "$naps" -ge 200 ]; do
	naps=$((naps + 1))
	nap
done
