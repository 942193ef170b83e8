package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/internal/testkit"
)

// goneLimit bounds how long after its end everything that a dev or demo started may still be there: Postgres stops its
// children and the guardian removes the directory.
const goneLimit = time.Minute

// private is a running `sluice dev` or `sluice demo`.
type private struct {
	mark string // in the environment of every process of ours that belongs to it
	out  output
	pid  int
	wait func() (exitCode int)
}

var den = regexp.MustCompile(`/tmp/sluice-[0-9]+`)

func startPrivate(t *testing.T, args ...string) *private {
	t.Helper()
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("needs /proc to see what is left")
	}
	p := &private{mark: "SLUICE_TEST_MARK=" + t.Name()}
	cmd := program(context.WithoutCancel(t.Context()), []string{p.mark}, args...)
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.pid = cmd.Process.Pid
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the exit code tells
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
	if err := syscall.Kill(p.pid, s); err != nil {
		t.Fatal(err)
	}
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

// left lists processes that carry the mark (ours, and the guardian) or work in the directory (the servers), and the
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

// startDev returns once dev says that it runs.
func startDev(t *testing.T, args ...string) (p *private, api, dir string) {
	t.Helper()
	p = startPrivate(t, append([]string{"dev", "--http-addr", "127.0.0.1:0"}, args...)...)
	testkit.Eventually(t, 3*time.Minute, "dev to run", func() bool { return strings.Contains(p.out.String(), "Sluice is running") })
	api = regexp.MustCompile(`API (http://[0-9.:]+)`).FindStringSubmatch(p.out.String())[1]
	return p, api, den.FindString(p.out.String())
}

func TestDevServesAndStopsOnInterrupt(t *testing.T) {
	t.Parallel()
	p, api, dir := startDev(t, "--sale")
	order(t, api, "alice", http.StatusAccepted)
	if n := len(p.left(dir)); n < 6 {
		t.Fatalf("saw %d processes and directories, want all of dev's: the check below would see nothing", n)
	}
	p.signal(t, syscall.SIGINT)
	if code := p.wait(); code != 0 {
		t.Errorf("got exit code %d, want 0", code)
	}
	p.mustLeaveNothing(t, dir)
	out := p.out.String()
	for _, text := range []string{"curl -i -X POST " + api, "worker-1", "worker-2", "worker left", "nothing is left behind"} {
		if !strings.Contains(out, text) {
			t.Errorf("dev did not say %q", text)
		}
	}
}

// A dev that is killed can't tidy up; its guardian does.
func TestDevThatIsKilledLeavesNothing(t *testing.T) {
	t.Parallel()
	p, api, dir := startDev(t, "--sale", "--workers", "1")
	order(t, api, "alice", http.StatusAccepted)
	p.signal(t, syscall.SIGKILL)
	p.wait()
	p.mustLeaveNothing(t, dir)
}

// order asks for one unit of the example sale.
func order(t *testing.T, api, user string, want int) {
	t.Helper()
	status, body := 0, ""
	testkit.Eventually(t, time.Minute, "an answer", func() bool { // a busy machine may be asked again
		status, body = request(t, api, user)
		return status != http.StatusServiceUnavailable
	})
	if status != want {
		t.Fatalf("got %d, %s, want %d", status, body, want)
	}
}

// request asks for the unit, every time with the same key.
func request(t *testing.T, api, user string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api+"/v1/sales/"+devSale+"/orders", strings.NewReader(`{"quantity":1}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-User-Id", user)
	request.Header.Set("Idempotency-Key", "one")
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// The whole demo, small: its own proof decides about the exit code. Two at once don't disturb each other.
func TestTwoDemosAtOnce(t *testing.T) {
	t.Parallel()
	demos := make([]*private, 2)
	for i := range demos {
		demos[i] = startPrivate(t, "demo", "--json", "--requests", "2000", "--stock", "100", "--seed", strconv.Itoa(i+1), "--pay-within", "25s")
	}
	for i, p := range demos {
		if code := p.wait(); code != 0 {
			t.Errorf("demo %d: got exit code %d, want 0", i+1, code)
		}
		p.mustLeaveNothing(t, "")
		out := p.out.String()
		for _, text := range []string{`"ok": true`, `"live": 100`, `"in_hand"`, `"drift": 0`, "kill -9 with"} {
			if !strings.Contains(out, text) {
				t.Errorf("demo %d did not say %q", i+1, text)
			}
		}
	}
}

func TestDemoThatIsInterruptedLeavesNothing(t *testing.T) {
	t.Parallel()
	p := startPrivate(t, "demo", "--requests", "4000", "--stock", "200")
	testkit.Eventually(t, 3*time.Minute, "the rush to begin", func() bool { return strings.Contains(p.out.String(), "The rush") })
	p.signal(t, syscall.SIGINT)
	if code := p.wait(); code != 1 {
		t.Errorf("got exit code %d, want 1", code)
	}
	p.mustLeaveNothing(t, "")
	if !strings.Contains(p.out.String(), "interrupted") {
		t.Error("it did not say that it was interrupted")
	}
}
