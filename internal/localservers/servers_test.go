package localservers

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func newServers(t *testing.T) *Servers {
	t.Helper()
	s, err := Start(limited(t))
	needServer(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	return s
}

func TestTwoPairsOfServersAtOnce(t *testing.T) {
	t.Parallel()
	needBoth(t)
	var pairs [2]*Servers
	var starts sync.WaitGroup
	for i := range pairs {
		starts.Go(func() { pairs[i] = newServers(t) })
	}
	starts.Wait()
	for i, s := range pairs {
		if s == nil {
			t.Fatal("a pair didn't start")
		}
		check(t, clientOf(t, s.Redis).Incr(limited(t), "count").Err())
		conn := connect(t, s.Postgres)
		sqlExec(t, conn, "create table only_here (n int)") // fails if both pairs have one database
		if got := clientOf(t, s.Redis).Get(limited(t), "count").Val(); got != "1" {
			t.Errorf("pair %d: got count %s, want 1: the pairs share a Redis", i, got)
		}
	}
	check(t, pairs[0].Close())
	check(t, clientOf(t, pairs[1].Redis).Ping(limited(t)).Err()) // the other one is not affected
	awaitNothing(t, pairs[0].Dir())
}

// A ctrl-C reaches the terminal's foreground process group, and must not reach the servers.
func TestServersHaveASessionOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	program := run(t, s, Program{Name: "worker", Path: "/bin/sleep", Args: []string{"600"}})
	pids := map[string]int{
		"redis": s.Redis.PID(), "postgres": s.Postgres.PID(), "program": program.PID(),
		"supervisor": s.sandbox.supervisor.Process.Pid,
	}
	for name, pid := range pids {
		group := must(syscall.Getpgid(pid))(t)
		if group != pid {
			t.Errorf("%s: process group %d, want its own, %d", name, group, pid)
		}
	}
}

func TestCloseTidiesUpWithoutItsSupervisor(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	check(t, s.sandbox.supervisor.Process.Kill())
	check(t, s.Close())
	awaitNothing(t, s.Dir())
}

func TestNothingStartsInAClosedSandbox(t *testing.T) {
	t.Parallel()
	d := must(openSandbox())(t)
	t.Cleanup(func() { check(t, d.close()) })
	check(t, os.Remove(filepath.Join(d.dir, "open"))) // the supervisor's first act
	proof := filepath.Join(d.dir, "started")
	proc := must(d.start(command{name: "late", argv: []string{"/bin/touch", proof}}))(t)
	<-proc.exited
	if _, err := os.Stat(proof); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a command ran after its sandbox was closed: %v", err)
	}
}

// Not parallel: it changes the environment.
func TestDirectoryIsShortAndClosedToOthers(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), strings.Repeat("long", 40)))
	d := must(openSandbox())(t)
	t.Cleanup(func() { check(t, d.close()) })
	if got := len(d.dir) + len(longestSocket); got > maxSocketPath {
		t.Errorf("a socket's path has %d bytes, want at most %d", got, maxSocketPath)
	}
	info := must(os.Stat(d.dir))(t)
	if got := info.Mode().Perm(); got&^0o011 != 0o700 {
		t.Errorf("%s has mode %o, want 700 or 711", d.dir, got)
	}
}

func run(t *testing.T, s *Servers, p Program) *RunningProgram {
	t.Helper()
	program := must(s.Run(p))(t)
	return program
}

func TestProgramsRunBesideServersAndEndWithThem(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	var out strings.Builder
	printer := run(t, s, Program{
		Name: "printer", Path: "/bin/sh", Args: []string{"-c", "echo $GREETING; pwd; exit 3"},
		Env: []string{"GREETING=hello"}, Dir: "/", Stdout: &out,
	})
	var exit *exec.ExitError
	if err := printer.Err(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("got %v, want exit code 3", err)
	}
	if got, want := out.String(), "hello\n/\n"; got != want {
		t.Errorf("output: got %q, want %q", got, want)
	}
	sleeper := Program{Name: "worker", Path: "/bin/sleep", Args: []string{"600"}}
	first, second, third := run(t, s, sleeper), run(t, s, sleeper), run(t, s, sleeper)
	check(t, first.Kill())
	check(t, second.Pause())
	check(t, second.Resume())
	check(t, second.Stop(limited(t)))
	check(t, s.Close())
	for _, program := range []*RunningProgram{first, second, third} {
		<-program.Exited()
		if program.Err() == nil || isAlive(program.PID()) {
			t.Errorf("process %d: got %v, want it ended by a signal", program.PID(), program.Err())
		}
	}
	for _, name := range []string{"", "a b", "a/b", "a\nended redis 1"} {
		if _, err := s.Run(Program{Name: name, Path: "/bin/true"}); err == nil {
			t.Errorf("a program named %q was started", name)
		}
	}
	if _, err := s.Run(sleeper); err == nil {
		t.Error("a program started beside closed servers")
	}
}

func TestStopKillsAProgramThatWillNotEnd(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	reader, writer, err := os.Pipe()
	check(t, err)
	defer reader.Close()
	const script = "trap '' TERM; echo deaf; while :; do sleep 1; done"
	program := run(t, s, Program{Name: "deaf", Path: "/bin/sh", Args: []string{"-c", script}, Stdout: writer})
	check(t, writer.Close())
	if _, err := reader.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := program.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	<-program.Exited()
}
