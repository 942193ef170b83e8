package localservers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// childrenOf lists the direct children of a process: Postgres has no others.
func childrenOf(parent int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	if len(stats) == 0 {
		return childrenFromPS(parent)
	}
	var children []int
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has exited since the listing
		}
		if _, ppid, ok := parseStat(stat); ok && ppid == parent {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				return nil, err
			}
			children = append(children, pid)
		}
	}
	return children, nil
}

// parseStat reads the state and the parent from /proc/PID/stat: `PID (command) state parent …`. The command may contain
// spaces and parentheses, so the last one counts.
func parseStat(stat []byte) (state string, ppid int, ok bool) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return "", 0, false
	}
	ppid, err := strconv.Atoi(string(fields[1]))
	return string(fields[0]), ppid, err == nil
}

// childrenFromPS is for systems without /proc.
func childrenFromPS(parent int) ([]int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ps", "-A", "-o", "pid=", "-o", "ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var children []int
	for line := range strings.Lines(string(out)) {
		var pid, ppid int
		if _, err := fmt.Sscan(line, &pid, &ppid); err == nil && ppid == parent {
			children = append(children, pid)
		}
	}
	return children, nil
}

func signalChild(pid int, s syscall.Signal) error {
	if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %s to process %d: %w", s, pid, err)
	}
	return nil
}

// awaitExit waits until none of the processes runs any more. They are not our children, so there is nothing to reap and
// no event to wait for.
func awaitExit(pids []int, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for _, pid := range pids {
		for isAlive(pid) {
			if time.Now().After(deadline) {
				return fmt.Errorf("process %d did not end within %s of SIGKILL", pid, limit)
			}
			time.Sleep(pollEvery)
		}
	}
	return nil
}

// isAlive does not count a zombie: it has released everything, and when its new parent reaps it is not up to us.
func isAlive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist) || !hasProc()
	}
	state, _, ok := parseStat(stat)
	return !ok || state != "Z"
}

func hasProc() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}
