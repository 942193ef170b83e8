package localservers

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain is also the program that tests start in order to kill it: see killed_parent_test.go.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(playRole(role))
	}
	goleak.VerifyTestMain(m)
}

// testLimit bounds what a test does with servers: far more than it takes, so that only a hang reaches it.
const testLimit = time.Minute

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	t.Cleanup(cancel)
	return ctx
}

// needServer skips the test where a server isn't installed, unless servers are required, and fails it on any other
// error.
func needServer(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, ErrNoBinary) && os.Getenv("CI") == "" && os.Getenv("SLUICE_REQUIRE_SERVERS") == "" {
		t.Skipf("needs a real server: %v", err)
	}
	check(t, err)
}

func newRedis(t *testing.T, config ...string) *Redis {
	t.Helper()
	r, err := StartRedis(limited(t), config...)
	needServer(t, err)
	t.Cleanup(func() { check(t, r.Close()) })
	return r
}

func newPostgres(t *testing.T, config ...string) *Postgres {
	t.Helper()
	p, err := StartPostgres(limited(t), config...)
	needServer(t, err)
	t.Cleanup(func() { check(t, p.Close()) })
	return p
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must returns the value of a call, and ends the test on an error.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for %s, in vain", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// publicDir is like t.TempDir, but accessible to other accounts.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sluicetest-")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	check(t, os.Chmod(dir, 0o755))
	return dir
}

// skipUnsupported skips a test of a feature that this system does not have.
func skipUnsupported(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("this system can't limit the files of a running process")
	}
	t.Fatal(err)
}
