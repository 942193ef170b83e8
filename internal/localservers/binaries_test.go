package localservers

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// These tests aren't parallel: they change the environment.

func writeExecutables(t *testing.T, dir string, names ...string) string {
	t.Helper()
	check(t, os.MkdirAll(dir, 0o755))
	for _, name := range names {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755))
	}
	return dir
}

func TestFindRedis(t *testing.T) {
	t.Setenv(redisServerEnv, "")
	t.Setenv("PATH", t.TempDir())
	if _, err := findRedis(); !errors.Is(err, ErrNoBinary) {
		t.Errorf("nothing installed: got %v, want %v", err, ErrNoBinary)
	}
	both := writeExecutables(t, t.TempDir(), "valkey-server")
	t.Setenv("PATH", both)
	if got, err := findRedis(); err != nil || got != filepath.Join(both, "valkey-server") {
		t.Errorf("Valkey alone: got %s, %v", got, err)
	}
	writeExecutables(t, both, "redis-server")
	if got, err := findRedis(); err != nil || got != filepath.Join(both, "redis-server") {
		t.Errorf("both: got %s, %v", got, err)
	}
	t.Setenv(redisServerEnv, filepath.Join(both, "valkey-server"))
	if got, err := findRedis(); err != nil || got != filepath.Join(both, "valkey-server") {
		t.Errorf("chosen: got %s, %v", got, err)
	}
	t.Setenv(redisServerEnv, filepath.Join(both, "nothing"))
	if _, err := findRedis(); err == nil || errors.Is(err, ErrNoBinary) {
		t.Errorf("chosen but missing: got %v, want an error that installing can't help", err)
	}
}

func TestFindPostgres(t *testing.T) {
	home := writeExecutables(t, filepath.Join(t.TempDir(), "pg", "bin"), "postgres", "initdb")
	links := t.TempDir()
	check(t, os.Symlink(filepath.Join(home, "postgres"), filepath.Join(links, "postgres")))
	t.Setenv(postgresBinEnv, "")
	t.Setenv("PATH", links)
	if got, err := findPostgres(); err != nil || got != home {
		t.Errorf("a link in PATH: got %s, %v, want %s", got, err, home)
	}
	t.Setenv(postgresBinEnv, home)
	t.Setenv("PATH", "")
	if got, err := findPostgres(); err != nil || got != home {
		t.Errorf("chosen: got %s, %v, want %s", got, err, home)
	}
	t.Setenv(postgresBinEnv, links)
	if _, err := findPostgres(); err == nil || errors.Is(err, ErrNoBinary) {
		t.Errorf("chosen without initdb: got %v, want an error that installing can't help", err)
	}
}

func TestNewestPostgres(t *testing.T) {
	root := t.TempDir()
	var dirs []string
	for _, version := range []string{"9.6", "10", "17", "15"} {
		dirs = append(dirs, writeExecutables(t, filepath.Join(root, version, "bin"), "postgres", "initdb"))
	}
	dirs = append(dirs, writeExecutables(t, filepath.Join(root, "18", "bin"), "psql")) // the client alone
	if got, err := newestVersion(dirs); err != nil || got != filepath.Join(root, "17", "bin") {
		t.Errorf("got %s, %v, want version 17", got, err)
	}
	if _, err := newestVersion(nil); !errors.Is(err, ErrNoBinary) {
		t.Errorf("none: got %v, want %v", err, ErrNoBinary)
	}
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	state, ppid, ok := parseStat([]byte("17 (a) (strange) name) S 4 17 17 0"))
	if !ok || state != "S" || ppid != 4 {
		t.Errorf("got %q, %d, %t, want S, 4, true", state, ppid, ok)
	}
	for _, broken := range []string{"", "17", "17 (sh)", "17 (sh) S x"} {
		if _, _, ok := parseStat([]byte(broken)); ok {
			t.Errorf("%q was parsed", broken)
		}
	}
}
