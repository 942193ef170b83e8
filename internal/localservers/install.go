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
	// installLimit bounds an installation: some 60 MB to download, over a slow line.
	installLimit = 15 * time.Minute
	// installGrace is how long an interrupted installation may take to clean up.
	installGrace = 30 * time.Second
	// lockEvery is how often a second installation checks whether the first one is done.
	lockEvery = 500 * time.Millisecond
)

// packageManager is one way to install the servers.
type packageManager struct {
	name     string
	redis    string   // package
	postgres string   // package
	install  []string // argv, completed by the packages
	script   string   // what install runs, in a checkout: it starts no service, and is better to type than manual
	manual   string   // for people to type where there is no checkout
	asUser   bool     // must not run as root
}

// packageManagers are tried in this order.
var packageManagers = []packageManager{
	{
		name: "apt-get", redis: "redis-server", postgres: "postgresql",
		install: []string{"/bin/sh", "-c", aptScript, "install-apt", ""},
		script:  "internal/localservers/install-apt.sh",
		manual:  "sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends %s'",
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

// Install makes sure that Redis and Postgres are installed. Where they are, it returns at once and prints nothing.
// Otherwise it installs what is missing with the system's package manager (apt-get, dnf, apk, brew) if it may: as root,
// or with a sudo that asks for no password. It never starts a system service. If it may not install, the error names
// the one command to type. It reports its progress in plain lines and takes up to 15 minutes.
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
	missing, err := findMissing() // again: another `make demo` may have installed them while we waited
	if err == nil {
		return nil
	}
	if !missing.redis && !missing.postgres {
		return err
	}
	return manager.installMissing(ctx, out, missing)
}

type missingServers struct{ redis, postgres bool }

// findMissing returns which servers are not installed. An error without a missing server is one that installing can't
// fix.
func findMissing() (missingServers, error) {
	_, redisErr := findRedis()
	_, postgresErr := findPostgres()
	missing := missingServers{redis: errors.Is(redisErr, ErrNoBinary), postgres: errors.Is(postgresErr, ErrNoBinary)}
	return missing, errors.Join(redisErr, postgresErr)
}

func findManager() (packageManager, string, error) {
	for _, manager := range packageManagers {
		if path, err := exec.LookPath(manager.name); err == nil {
			return manager, path, nil
		}
	}
	return packageManager{}, "", errors.New("Redis (or Valkey) and Postgres are needed; " +
		"found no package manager that is supported, so please install them and repeat")
}

// lockManager allows one installation at a time. It locks the package manager's own executable, which exists, is
// readable for every user, and is not changed by an installation.
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

func (m packageManager) packages(missing missingServers) []string {
	var names []string
	if missing.redis {
		names = append(names, m.redis)
	}
	if missing.postgres {
		names = append(names, m.postgres)
	}
	return names
}

func (m packageManager) installMissing(ctx context.Context, out io.Writer, missing missingServers) error {
	packages := m.packages(missing)
	sudo, allowed := m.privilege(ctx)
	if !allowed {
		return fmt.Errorf("tests and demo need servers of their own; please install them, then repeat:\n\n    %s",
			m.byHand(packages))
	}
	fmt.Fprintf(out, "setup: installing %s with %s (once; no service is started)\n",
		strings.Join(packages, " and "), m.name)
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

// byHand is the command for people who may not install, to be typed by somebody who may.
func (m packageManager) byHand(packages []string) string {
	names := strings.Join(packages, " ")
	if _, err := os.Stat(m.script); m.script != "" && err == nil {
		return fmt.Sprintf(`sudo sh %s "" %s`, m.script, names)
	}
	return fmt.Sprintf(m.manual, names)
}

// privilege returns the prefix of the command, and whether the command may run at all.
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

// execute runs a command without a terminal. Its output is shown only to explain a failure.
func execute(ctx context.Context, argv []string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	// An interruption ends the package manager too, not only the shell above it, and leaves time to clean up. What sudo
	// runs is not ours to signal: it gets a ctrl-C from the terminal, and otherwise ends when it is done.
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
