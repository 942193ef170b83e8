package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/internal/testkit"
)

// goneLimit bounds how long after its end everything that a dev or demo started may still be there: Postgres stops its
// children and the supervisor removes the directory.
const goneLimit = time.Minute

// private is a running `sluice dev` or `sluice demo`.
type private struct {
	mark string // in the environment of every process of ours that belongs to it
	out  testkit.Log
	pid  int
	wait func() (exitCode int)
}

func startPrivate(t *testing.T, settings []string, args ...string) *private {
	t.Helper()
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("needs /proc to see what is left")
	}
	p := &private{mark: "SLUICE_TEST_MARK=" + t.Name()}
	cmd := program(context.WithoutCancel(t.Context()), append(slices.Clone(settings), p.mark), args...)
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	must(t, cmd.Start())
	p.pid = cmd.Process.Pid
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the exit code says more
	}()
	p.wait = func() int {
		<-ended
		return cmd.ProcessState.ExitCode()
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended, unless the test has failed
		<-ended
		if t.Failed() {
			t.Logf("its output:\n%s", p.out.String())
		}
	})
	return p
}

func (p *private) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	must(t, syscall.Kill(p.pid, s))
}

// mustLeaveNothing waits until no process and no directory of it is left. dir may be empty when it is not known.
func (p *private) mustLeaveNothing(t *testing.T, dir string) {
	t.Helper()
	var left []string
	deadline := time.Now().Add(goneLimit)
	for {
		left = p.left(dir)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s after the end there are still: %s", goneLimit, strings.Join(left, "; "))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// left lists processes that carry the mark (ours, and the supervisor) or work in the directory (the servers), and the
// directory itself.
func (p *private) left(dir string) []string {
	var left []string
	if _, err := os.Stat(dir); dir != "" && err == nil {
		left = append(left, dir)
	}
	processes, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed
	for _, process := range processes {
		environ, _ := os.ReadFile(process + "/environ") // it may have ended
		cwd, _ := os.Readlink(process + "/cwd")
		ours := bytes.Contains(environ, []byte(p.mark+"\x00")) || dir != "" && strings.HasPrefix(cwd, dir)
		if ours && filepath.Base(process) != strconv.Itoa(os.Getpid()) {
			command, _ := os.ReadFile(process + "/cmdline")
			left = append(left, filepath.Base(process)+" "+strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return left
}
