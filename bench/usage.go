package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Usage is CPU time that processes have used so far, or between two looks. The kernel counts it in hundredths of a
// second.
type Usage struct {
	// this process: the api or the worker; the callers too where there is no network
	Self     time.Duration `json:"self"`
	Buyers   time.Duration `json:"buyers"`
	Redis    time.Duration `json:"redis"`
	Postgres time.Duration `json:"postgres"` // with all of its children
	Machine  time.Duration `json:"machine"`  // everybody, all cores
	Stolen   time.Duration `json:"stolen"`   // taken by other guests of the host
}

// tick is the unit of /proc/*/stat, USER_HZ: 100 a second on every architecture that Go runs on.
const tick = time.Second / 100

func (u Usage) since(before Usage) Usage {
	return Usage{
		Self: u.Self - before.Self, Buyers: u.Buyers - before.Buyers, Redis: u.Redis - before.Redis,
		Postgres: u.Postgres - before.Postgres, Machine: u.Machine - before.Machine, Stolen: u.Stolen - before.Stolen,
	}
}

func (u Usage) plus(more Usage) Usage {
	return Usage{
		Self: u.Self + more.Self, Buyers: u.Buyers + more.Buyers, Redis: u.Redis + more.Redis,
		Postgres: u.Postgres + more.Postgres, Machine: u.Machine + more.Machine, Stolen: u.Stolen + more.Stolen,
	}
}

// ours is what everybody used who took part.
func (u Usage) ours() time.Duration { return u.Self + u.Buyers + u.Redis + u.Postgres }

// others is what strangers on this machine used: the more, the less its absolute numbers mean.
func (u Usage) others() time.Duration {
	return max(0, u.Machine-u.ours())
}

// usage looks at every process of the benchmark. Without /proc it finds nothing, and the report has no CPU columns.
func (s *testbed) usage() (Usage, error) {
	if !hasProc() {
		return Usage{}, nil
	}
	var u Usage
	var errs [4]error
	u.Self, errs[0] = usedBy(os.Getpid())
	u.Buyers, errs[1] = usedBy(s.buyers.pid())
	u.Redis, errs[2] = usedBy(s.servers.Redis.PID())
	u.Postgres, errs[3] = usedByFamily(s.servers.Postgres.PID())
	text, err := os.ReadFile("/proc/stat")
	if err == nil {
		u.Machine, u.Stolen, err = parseMachine(text)
	}
	return u, errors.Join(append(errs[:], err)...)
}

func hasProc() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}

func usedBy(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	stat, err := parseProcess(text)
	return stat.used, err
}

// usedByFamily adds a process' living children; those that have ended are in its own account. Postgres has no
// grandchildren.
func usedByFamily(pid int) (time.Duration, error) {
	sum, err := usedBy(pid)
	if err != nil {
		return 0, err
	}
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || err != nil && len(text) == 0 {
			continue // it has ended since the listing
		}
		if stat, err := parseProcess(text); err == nil && stat.parent == pid {
			sum += stat.used
		}
	}
	return sum, nil
}

type processStat struct {
	parent int
	used   time.Duration // its own and that of the children it has waited for
}

// parseProcess reads /proc/PID/stat (proc(5)): `PID (command) state parent …`, with the four times from field 14 on.
// The command may hold spaces and parentheses, so the last one counts.
func parseProcess(text []byte) (processStat, error) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const parent, times = 1, 11 // counted from the state
	if len(fields) < times+4 {
		return processStat{}, fmt.Errorf("process statistics %.100q are too short", text)
	}
	var stat processStat
	var err error
	if stat.parent, err = strconv.Atoi(string(fields[parent])); err != nil {
		return processStat{}, fmt.Errorf("process statistics: parent: %w", err)
	}
	stat.used, err = sumTicks(fields[times : times+4])
	return stat, err
}

// parseMachine reads the first line of /proc/stat: `cpu user nice system idle iowait irq softirq steal …`.
func parseMachine(text []byte) (busy, stolen time.Duration, err error) {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 9 || string(fields[0]) != "cpu" {
		return 0, 0, fmt.Errorf("machine statistics %.100q are not understood", line)
	}
	if stolen, err = sumTicks(fields[8:9]); err != nil {
		return 0, 0, err
	}
	busy, err = sumTicks([][]byte{fields[1], fields[2], fields[3], fields[6], fields[7]})
	return busy, stolen, err
}

func sumTicks(fields [][]byte) (time.Duration, error) {
	var sum time.Duration
	for _, f := range fields {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("CPU time: %w", err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}
