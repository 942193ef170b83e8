package localservers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// These tests aren't parallel: they change the environment, so that Install finds a fake package manager.

// freshMachine has no servers: PATH contains only a directory with a fake package manager and a fake sudo.
func freshMachine(t *testing.T, manager, script string) (bin string) {
	t.Helper()
	bin = t.TempDir()
	known := postgresDirs
	postgresDirs = nil
	t.Cleanup(func() { postgresDirs = known })
	t.Setenv(redisServerEnv, "")
	t.Setenv(postgresBinEnv, "")
	t.Setenv("PATH", bin)
	t.Setenv("BIN", bin)
	plantScript(t, bin, "sudo", `[ "$1" = -n ] && shift && "$@"`)
	if manager != "" {
		plantScript(t, bin, manager, `echo "$@" >>"$BIN/calls"; `+script)
	}
	return bin
}

func plantScript(t *testing.T, bin, name, script string) {
	t.Helper()
	check(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
}

func callsOf(t *testing.T, bin string) string {
	t.Helper()
	calls, err := os.ReadFile(filepath.Join(bin, "calls"))
	if !errors.Is(err, os.ErrNotExist) {
		check(t, err)
	}
	return string(calls)
}

// provide installs the servers, as a package manager does.
const provide = `for file in redis-server postgres initdb; do
	echo '#!/bin/sh' >"$BIN/$file"; /bin/chmod 755 "$BIN/$file"
done`

func TestInstallBringsWhatIsMissing(t *testing.T) {
	bin := freshMachine(t, "dnf", provide)
	var out strings.Builder
	check(t, Install(t.Context(), &out))
	if got, want := callsOf(t, bin), "install -y redis postgresql-server\n"; got != want {
		t.Errorf("dnf: got %q, want %q", got, want)
	}
	if strings.Count(out.String(), "\n") != 2 || !strings.Contains(out.String(), "redis and postgresql-server with dnf") {
		t.Errorf("progress: got %q", out.String())
	}
	out.Reset()
	check(t, Install(t.Context(), &out))
	if got := callsOf(t, bin) + out.String(); strings.Count(got, "\n") != 1 {
		t.Errorf("a second time: %q, want no output and no call", got)
	}
	check(t, os.Remove(filepath.Join(bin, "redis-server")))
	check(t, Install(t.Context(), &out))
	if got, want := callsOf(t, bin), "install -y redis\n"; !strings.HasSuffix(got, want) {
		t.Errorf("Redis alone missing: got %q, want it to end with %q", got, want)
	}
}

func TestInstallTwiceAtOnceInstallsOnce(t *testing.T) {
	bin := freshMachine(t, "dnf", "/bin/sleep 0.3; "+provide)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if err := Install(t.Context(), new(strings.Builder)); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if got := callsOf(t, bin); strings.Count(got, "\n") != 1 {
		t.Errorf("dnf was called %q", got)
	}
}

func TestInstallSaysWhyItFailed(t *testing.T) {
	for name, c := range map[string]struct{ manager, script, want string }{
		"the manager fails":        {"dnf", "echo no route to mirror; exit 7", "no route to mirror"},
		"the package is not it":    {"dnf", "", "and yet"},
		"an unknown manager":       {"", "", "no package manager"},
		"not allowed to run it":    {"brew", provide, "\n    brew install redis postgresql"},
		"interrupted while asking": {"dnf", "exec /bin/sleep 600", "signal: terminated"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.manager == "brew" && os.Geteuid() != 0 {
				t.Skip("only root may not run brew")
			}
			freshMachine(t, c.manager, c.script)
			if os.Geteuid() != 0 && strings.Contains(c.want, "signal") {
				t.Skip("what sudo runs is not ours to signal")
			}
			limit := time.Minute
			if strings.HasPrefix(name, "interrupted") {
				limit = 4 * time.Second // enough for the manager to start, also on a busy machine
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if err := Install(ctx, new(strings.Builder)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to say %q", err, c.want)
			}
		})
	}
}

func TestInstallWithoutRightsNamesOneCommand(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root has the right; TestAsAnOrdinaryUser runs this")
	}
	bin := freshMachine(t, "apt-get", provide)
	plantScript(t, bin, "sudo", "exit 1") // asks for a password
	err := Install(t.Context(), new(strings.Builder))
	want := "sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends redis-server postgresql'"
	if err == nil || !strings.HasSuffix(err.Error(), "\n    "+want) {
		t.Errorf("got %v, want it to end with %s", err, want)
	}
	checkout := t.TempDir() // has the script that root's own way runs, which starts no service
	script := filepath.Join(checkout, "internal", "localservers", "install-apt.sh")
	if err := errors.Join(os.MkdirAll(filepath.Dir(script), 0o755), os.WriteFile(script, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Chdir(checkout)
	err = Install(t.Context(), new(strings.Builder))
	want = `sudo sh internal/localservers/install-apt.sh "" redis-server postgresql`
	if err == nil || !strings.HasSuffix(err.Error(), "\n    "+want) {
		t.Errorf("in a checkout: got %v, want it to end with %s", err, want)
	}
	if got := callsOf(t, bin); got != "" {
		t.Errorf("apt-get was called: %s", got)
	}
}

func TestInstallLeavesAChosenBinaryToItsChooser(t *testing.T) {
	bin := freshMachine(t, "dnf", provide)
	plantScript(t, bin, "postgres", "")
	plantScript(t, bin, "initdb", "")
	t.Setenv(redisServerEnv, "/nowhere/redis-server")
	err := Install(t.Context(), new(strings.Builder))
	if err == nil || !strings.Contains(err.Error(), redisServerEnv) || callsOf(t, bin) != "" {
		t.Errorf("got %v and calls %q, want the setting named and no call", err, callsOf(t, bin))
	}
}

// aptMachine is a root directory for install-apt.sh, whose apt-get reports the state of the machine while it installs.
func aptMachine(t *testing.T, aptGet string) (root string) {
	t.Helper()
	root = t.TempDir()
	check(t, os.MkdirAll(filepath.Join(root, "usr/sbin"), 0o755))
	check(t, os.MkdirAll(filepath.Join(root, "etc"), 0o755))
	plantScript(t, root, "apt-get", `cd "$ROOT"
cat usr/sbin/policy-rc.d etc/postgresql-common/createcluster.d/sluice.conf >seen
echo "$@" >>"$ROOT/calls"; `+aptGet)
	plantScript(t, root, "dpkg-query", "exit 1")
	plantScript(t, root, "systemctl", `echo systemctl "$@" >>"$ROOT/calls"`)
	t.Setenv("ROOT", root)
	t.Setenv("PATH", root+":"+os.Getenv("PATH"))
	return root
}

func install(t *testing.T, ctx context.Context, root string) error {
	t.Helper()
	return execute(ctx, []string{"/bin/sh", "-c", aptScript, "install-apt", root, "redis-server", "postgresql"})
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestAptStartsNoServiceAndTidiesUp(t *testing.T) {
	for name, c := range map[string]struct {
		aptGet string
		fails  bool
	}{
		"done":        {aptGet: "true"},
		"failed":      {aptGet: "exit 100", fails: true},
		"interrupted": {aptGet: "exec sleep 600", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			root := aptMachine(t, c.aptGet)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			if name == "interrupted" {
				go func() {
					for ctx.Err() == nil && !isThere(filepath.Join(root, "calls")) { // while it installs
						time.Sleep(10 * time.Millisecond)
					}
					interrupt()
				}()
			}
			if err := install(t, ctx, root); (err != nil) != c.fails {
				t.Errorf("got %v, want failure %t", err, c.fails)
			}
			seen := must(os.ReadFile(filepath.Join(root, "seen")))(t)
			for _, want := range []string{"exit 101", "create_main_cluster = false"} {
				if !strings.Contains(string(seen), want) {
					t.Errorf("while installing: %q is missing in %q", want, seen)
				}
			}
			if isThere(filepath.Join(root, "usr/sbin/policy-rc.d")) || isThere(filepath.Join(root, "etc/postgresql-common")) {
				t.Error("something is left behind")
			}
		})
	}
}

func TestAptCallsAndServices(t *testing.T) {
	root := aptMachine(t, "true")
	check(t, install(t, t.Context(), root))
	want := "update\ninstall -y --no-install-recommends -o DPkg::Lock::Timeout=120 redis-server postgresql\n" +
		"systemctl disable redis-server.service\n"
	if got := callsOf(t, root); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	plantScript(t, root, "dpkg-query", "printf installed")
	check(t, install(t, t.Context(), root))
	if got := callsOf(t, root); strings.Count(got, "systemctl") != 1 {
		t.Errorf("the service of a package that was there before was touched: %q", got)
	}
}

func TestAptKeepsAPolicyThatIsNotOurs(t *testing.T) {
	root := aptMachine(t, "true")
	policy := filepath.Join(root, "usr/sbin/policy-rc.d")
	check(t, os.WriteFile(policy, []byte("#!/bin/sh\nexit 104\n"), 0o755))
	check(t, install(t, t.Context(), root))
	if got, err := os.ReadFile(policy); err != nil || string(got) != "#!/bin/sh\nexit 104\n" {
		t.Errorf("got %q, %v, want it untouched", got, err)
	}
	_, mark, _ := strings.Cut(aptScript, "mark='")
	mark, _, _ = strings.Cut(mark, "'")
	check(t, os.WriteFile(policy, []byte("#!/bin/sh\n"+mark+"\nexit 101\n"), 0o755))
	check(t, install(t, t.Context(), root))
	if isThere(policy) {
		t.Error("a leftover of ours is still there")
	}
}
