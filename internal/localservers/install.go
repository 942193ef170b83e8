package localservers

import (
	"context"
	_ "embed" // install-apt.sh
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

//go:embed install-apt.sh
var aptScript string

const (
	// installLimit bounds an installation: some 60 MB to download, over any line.
	installLimit = 15 * time.Minute
	// installGrace is how long an interrupted installation may take to tidy up.
	installGrace = 30 * time.Second
	// lockEvery is how often a second installation looks whether the first one is done.
	lockEvery = 500 * time.Millisecond
)

// packageManager is one way to install the servers.
type packageManager struct {
	name     string
	redis    string   // package
	postgres string   // package
	install  []string // argv, completed by the packages
	manual    string   // the same for people to type, likewise
	asUser   bool     // must not run as root
}

// packageManagers in the order in which they are looked for.
var packageManagers = []packageManager{
	{
		name: "apt-get", redis: "redis-server", postgres: "postgresql",
		install: []string{"/bin/sh", "-c", aptScript, "install-apt", ""},
		manual:   "sudo sh -c 'apt-get update && apt-get install -y %s'",
	},
	{
		name: "dnf", redis: "redis", postgres: "postgresql-server",
		install: []string{"dnf", "install", "-y"}, manual: "sudo dnf install -y %s",
	},
	{
		name: "apk", redis: "redis", postgres: "postgresql",
		install: []string{"apk", "add"}, manual: "sudo apk add %s",
	},
	{
		name: "brew", redis: "redis", postgres: "postgresql",
		install: []string{"brew", "install"}, manual: "brew install %s", asUser: true,
	},
}

// Install makes sure that FindRedis and FindPostgres find something. Where they do, it is done at once and prints nothing.
// Else it installs what is missing with the system's package manager (apt-get, dnf, apk, brew) if it may: as root, or with
// a sudo that asks no password. It never starts a system service. If it may not, the error names the one command to type.
// It reports its progress in plain lines and takes up to 15 minutes.
func Install(ctx context.Context, out io.Writer) error {
	if _, err := findMissing(); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, installLimit)
	defer cancel()
	manager, path, err := findManager()
	if err != nil {
		return err
	}
	unlock, err := lockManager(ctx, path)
	if err != nil {
		return err
	}
	defer unlock()
	lacks, err := findMissing() // again: another `make demo` may have installed them while we waited
	if err == nil {
		return nil
	}
	if !lacks.redis && !lacks.postgres {
		return err
	}
	return manager.installMissing(ctx, out, lacks)
}

type missingServers struct{ redis, postgres bool }

// missing tells which server isn't installed. An error without a lack is one that installing can't help.
func findMissing() (missingServers, error) {
	_, redisErr := findRedis()
	_, postgresErr := findPostgres()
	lacks := missingServers{redis: errors.Is(redisErr, ErrNoBinary), postgres: errors.Is(postgresErr, ErrNoBinary)}
	return lacks, errors.Join(redisErr, postgresErr)
}

func findManager() (packageManager, string, error) {
	for _, manager := range packageManagers {
		if path, err := exec.LookPath(manager.name); err == nil {
			return manager, path, nil
		}
	}
	return packageManager{}, "", errors.New("Redis (or Valkey) and Postgres are needed; " +
		"found no package manager that I know, so please install them and repeat")
}

// lockManager lets one installation run at a time. It locks the package manager's own executable, which is there, readable
// by everybody, and not changed by it.
func lockManager(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("wait for another installation: %w", err)
	}
	tick := time.NewTicker(lockEvery)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for another installation: %w", ctx.Err()), file.Close())
		case <-tick.C:
		}
	}
}

func (m packageManager) packages(lacks missingServers) []string {
	var names []string
	if lacks.redis {
		names = append(names, m.redis)
	}
	if lacks.postgres {
		names = append(names, m.postgres)
	}
	return names
}

func (m packageManager) installMissing(ctx context.Context, out io.Writer, lacks missingServers) error {
	packages := m.packages(lacks)
	sudo, allowed := m.privilege(ctx)
	if !allowed {
		return fmt.Errorf("tests and demo need servers of their own; please install them, then repeat:\n\n    "+m.manual,
			strings.Join(packages, " "))
	}
	fmt.Fprintf(out, "setup: installing %s with %s (once; no service is started)\n", strings.Join(packages, " and "), m.name)
	before := time.Now()
	if err := execute(ctx, slices.Concat(sudo, m.install, packages)); err != nil {
		return fmt.Errorf("%s could not install %s: %w", m.name, strings.Join(packages, " and "), err)
	}
	if _, err := findMissing(); err != nil {
		return fmt.Errorf("installed %s, and yet: %w", strings.Join(packages, " and "), err)
	}
	fmt.Fprintf(out, "setup: done after %s\n", time.Since(before).Round(time.Second))
	return nil
}

// privilege returns what to put before the command, and whether the command may run at all.
func (m packageManager) privilege(ctx context.Context) (prefix []string, allowed bool) {
	root := os.Geteuid() == 0
	if m.asUser || root {
		return nil, m.asUser != root
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := exec.CommandContext(ctx, "sudo", "-n", "true").Run(); err != nil {
		return nil, false
	}
	return []string{"sudo", "-n"}, true
}

// execute runs a command without a terminal. Its output is shown only where it explains a failure.
func execute(ctx context.Context, argv []string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	// An interruption ends the package manager too, not only the shell above it, and leaves the time to tidy up. What
	// sudo runs isn't ours to signal: that gets a ctrl-C from the terminal, and else ends by itself.
	if argv[0] != "sudo" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	}
	cmd.WaitDelay = installGrace
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w; its output ends:\n%s", err, lastLines(string(output)))
	}
	return nil
}
