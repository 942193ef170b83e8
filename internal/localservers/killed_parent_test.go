package localservers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// roleEnv makes the test binary play a role instead of running tests, so that a test can kill it.
const roleEnv = "SLUICE_TEST_ROLE"

// playRole starts servers, prints their directory, and waits to be killed. It exits when its stdin ends, and so with
// the test.
func playRole(role string) int {
	d, err := openSandbox()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(d.dir)
	s, err := startIn(context.Background(), d, settings{})
	if err == nil && role == "pause" {
		err = errors.Join(s.Redis.Pause(), s.Postgres.Pause())
	}
	if err == nil {
		_, err = s.Run(Program{Name: "worker", Path: "/bin/sleep", Args: []string{"600"}, Dir: d.dir})
	}
	fmt.Println("ready", err)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// child is another process with servers of its own.
type child struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	dir   string
}

func startChild(t *testing.T, role string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	stdin := must(cmd.StdinPipe())(t)
	stdout := must(cmd.StdoutPipe())(t)
	check(t, cmd.Start())
	c := &child{cmd: cmd, lines: bufio.NewScanner(stdout)}
	t.Cleanup(func() { _ = stdin.Close() })
	c.dir = c.line(t)
	return c
}

func (c *child) line(t *testing.T) string {
	t.Helper()
	if !c.lines.Scan() {
		t.Fatalf("the child ended early: %v", c.lines.Err())
	}
	return c.lines.Text()
}

func (c *child) awaitReady(t *testing.T) {
	t.Helper()
	if got := c.line(t); got != "ready <nil>" {
		t.Fatalf("child: %s", got)
	}
}

// kill ends the child without warning.
func (c *child) kill(t *testing.T) {
	t.Helper()
	check(t, c.cmd.Process.Kill())
	_ = c.cmd.Wait() // "signal: killed"
}

func needBoth(t *testing.T) {
	t.Helper()
	_, err := findRedis()
	needServer(t, err)
	_, err = findPostgres()
	needServer(t, err)
}

func TestNothingOutlivesAKilledParent(t *testing.T) {
	t.Parallel()
	needBoth(t)
	for _, role := range []string{"run", "pause"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			c := startChild(t, role)
			c.awaitReady(t)
			before := must(processesUnder(c.dir))(t)
			if len(before) < 4 { // Redis, Postgres, the worker, the supervisor, and Postgres' own
				t.Fatalf("the child runs only %v", before)
			}
			c.kill(t)
			awaitNothing(t, c.dir)
		})
	}
}

// When /tmp is cleaned up, by a user or a nightly job, the servers must still end.
func TestNothingOutlivesAKilledParentWithoutItsDirectory(t *testing.T) {
	t.Parallel()
	needBoth(t)
	c := startChild(t, "run")
	c.awaitReady(t)
	check(t, os.RemoveAll(c.dir))
	c.kill(t)
	awaitNothing(t, c.dir)
}

// Whenever the parent is killed (before initdb, during it, while a server starts) nothing is left.
func TestNothingOutlivesAParentKilledWhileStarting(t *testing.T) {
	t.Parallel()
	needBoth(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 6 {
		delay := time.Duration(random.IntN(1000)) * time.Millisecond
		c := startChild(t, "run")
		time.Sleep(delay) // not a wait for something: the moment is the test's input
		c.kill(t)
		awaitNothing(t, c.dir)
	}
}

func awaitNothing(t *testing.T, dir string) {
	t.Helper()
	var left []string
	eventually(t, "servers and directory to be gone", func() bool {
		_, err := os.Stat(dir)
		gone := errors.Is(err, os.ErrNotExist)
		left = must(processesUnder(dir))(t)
		return gone && len(left) == 0
	})
}

// processesUnder lists the processes that work in a directory or name it in their command line, as "PID command line".
func processesUnder(dir string) ([]string, error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, path := range lines {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it has exited since the listing
		}
		cwd, _ := os.Readlink(filepath.Join(filepath.Dir(path), "cwd"))
		line := strings.ReplaceAll(string(raw), "\x00", " ")
		if strings.Contains(line, dir) || strings.HasPrefix(cwd, dir) {
			found = append(found, filepath.Base(filepath.Dir(path))+" "+line)
		}
	}
	return found, nil
}

// Where the tests run as root, those that depend on the account run once more as an ordinary user.
func TestAsAnOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("these tests already run as an ordinary user")
	}
	needBoth(t)
	binary := filepath.Join(publicDir(t), "localservers.test")
	copyFile(t, os.Args[0], binary)
	nobody := account{stepDown: true, uid: 65534, gid: 65534}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	const tests = "^Test(.*KeepsEvery.*|Two.*|NothingOutlivesAKilledParent|Paused.*|Install.*)$"
	cmd := exec.CommandContext(ctx, binary, "-test.run="+tests, "-test.count=1")
	cmd.Dir = "/tmp"
	cmd.Env = append(os.Environ(), "HOME=/tmp", "TMPDIR=/tmp")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody.attributes().Credential}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as user 65534: %v\n%s", err, out)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	source := must(os.Open(from))(t)
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	check(t, err)
	_, err = io.Copy(target, source)
	check(t, errors.Join(err, target.Close()))
}
