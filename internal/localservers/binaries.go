package localservers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// Environment variables that choose the binaries, for running everything against another version.
const (
	redisServerEnv = "SLUICE_REDIS_SERVER" // path of a redis-server or valkey-server
	postgresBinEnv = "SLUICE_POSTGRES_BIN" // directory that contains postgres and initdb
)

// ErrNoBinary is in the chain of errors for a server that is not installed.
var ErrNoBinary = errors.New("not installed")

// postgresDirs are where packages put postgres and initdb without adding them to PATH: Debian, Red Hat (PGDG), Alpine,
// Homebrew on ARM and on Intel.
var postgresDirs = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/usr/libexec/postgresql*",
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
}

// findRedis returns the path of the Redis server to run: SLUICE_REDIS_SERVER, otherwise redis-server or valkey-server
// in PATH.
func findRedis() (string, error) {
	if chosen := os.Getenv(redisServerEnv); chosen != "" {
		if !isExecutable(chosen) {
			return "", fmt.Errorf("%s: %s is not an executable file", redisServerEnv, chosen)
		}
		return filepath.Abs(chosen)
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("redis-server (or valkey-server) is %w; `make setup` installs it", ErrNoBinary)
}

// findPostgres returns the directory of the postgres and initdb to run: SLUICE_POSTGRES_BIN, otherwise where PATH finds
// both, otherwise the highest version among the packages' directories.
func findPostgres() (string, error) {
	if chosen := os.Getenv(postgresBinEnv); chosen != "" {
		if !hasPostgres(chosen) {
			return "", fmt.Errorf("%s: %s does not contain postgres and initdb", postgresBinEnv, chosen)
		}
		return filepath.Abs(chosen)
	}
	if dir, ok := postgresInPath(); ok {
		return dir, nil
	}
	var found []string
	for _, pattern := range postgresDirs {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		found = append(found, dirs...)
	}
	return newestVersion(found)
}

// newestVersion picks the directory of the highest version among those that contain Postgres' programs.
func newestVersion(dirs []string) (string, error) {
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return !hasPostgres(dir) })
	if len(dirs) == 0 {
		return "", fmt.Errorf("postgres is %w; `make setup` installs it", ErrNoBinary)
	}
	return slices.MaxFunc(dirs, func(a, b string) int { return versionIn(a) - versionIn(b) }), nil
}

// postgresInPath follows links, because a link to postgres alone has no initdb beside it.
func postgresInPath() (string, bool) {
	path, err := exec.LookPath("postgres")
	if err != nil {
		return "", false
	}
	path, err = filepath.EvalSymlinks(path)
	if err != nil {
		return "", false
	}
	dir := filepath.Dir(path)
	return dir, hasPostgres(dir)
}

func hasPostgres(dir string) bool {
	return isExecutable(filepath.Join(dir, "postgres")) && isExecutable(filepath.Join(dir, "initdb"))
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

var lastNumber = regexp.MustCompile(`(\d+)\D*$`)

// versionIn parses the major version in the name of a package's directory; 0 if there is none.
func versionIn(dir string) int {
	number := lastNumber.FindStringSubmatch(dir)
	if number == nil {
		return 0
	}
	version, err := strconv.Atoi(number[1])
	if err != nil {
		return 0
	}
	return version
}
