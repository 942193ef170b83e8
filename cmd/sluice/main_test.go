package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
)

// asProgram in the environment makes this test binary be the program itself. So the tests run the real main in
// processes of its own, dev and demo start themselves again as they do in production, and the race detector watches all
// of them.
const asProgram = "SLUICE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(run(os.Args[1:]))
	}
	testkit.Main(m)
}

// must ends the test at an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// commandLimit bounds one command of a test; the slowest audits take some seconds on a busy machine.
const commandLimit = 2 * time.Minute

// outcome is what a command left.
type outcome struct {
	code     int
	out, err string
}

// sluice runs the program with some settings (NAME=value) and none of the environment's.
func sluice(t *testing.T, settings []string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandLimit)
	defer cancel()
	cmd := program(ctx, settings, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("sluice %s: %v", strings.Join(args, " "), err)
	}
	return outcome{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

func program(ctx context.Context, settings []string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append([]string{asProgram + "=1"}, asInProduction(settings, args)...)
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "GOCOVERDIR", "GORACE"} {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	return cmd
}

// mustFine fails the test unless the command went well, and returns what it printed.
func (o outcome) mustFine(t *testing.T) string {
	t.Helper()
	if o.code != 0 {
		t.Fatalf("got exit code %d, want 0\nout: %s\nerr: %s", o.code, o.out, o.err)
	}
	return o.out
}

// mustRefuse fails the test unless the command ended with this code and one plain sentence that says so much.
func (o outcome) mustRefuse(t *testing.T, code int, says ...string) {
	t.Helper()
	if o.code != code {
		t.Errorf("got exit code %d, want %d\nout: %s\nerr: %s", o.code, code, o.out, o.err)
	}
	if o.out != "" {
		t.Errorf("stdout is not empty: %s", o.out)
	}
	if strings.Count(o.err, "\n") != 1 || !strings.HasPrefix(o.err, "sluice: ") || strings.Contains(o.err, "goroutine") {
		t.Errorf("the error is not one sentence: %q", o.err)
	}
	for _, text := range says {
		if !strings.Contains(o.err, text) {
			t.Errorf("got %q, want it to say %q", o.err, text)
		}
	}
}

// decoded reads JSON output.
func decoded[T any](t *testing.T, out string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("not JSON: %v\n%s", err, out)
	}
	return v
}

// servers are a Redis of the test's own (the CLI's keys are those of a real installation, so it can't be shared) and a
// fresh database.
func servers(t *testing.T) []string {
	t.Helper()
	return []string{"REDIS_URL=" + testkit.PrivateRedis(t).URL(), "DATABASE_URL=" + withRoles(testkit.Database(t))}
}

// setting reads one of NAME=value.
func setting(settings []string, name string) string {
	for _, line := range settings {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			return value
		}
	}
	return ""
}
