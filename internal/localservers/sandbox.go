package localservers

import (
	_ "embed" // supervisor.sh
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

//go:embed supervisor.sh
var supervisorScript string

// maxSocketPath is what every system's sockaddr_un takes, less its NUL: Linux has 108 bytes, macOS 104.
const maxSocketPath = 103

// longestSocket is the longest path of a socket below a den.
const longestSocket = "/postgres/.s.PGSQL.5432"

// closeLimit bounds how long a den takes to close: the guardian's two waits of 10 s each, and some slack.
const closeLimit = 25 * time.Second

// den is a directory in which private servers live, and the guardian process that ends them and removes the directory
// once this process has closed the den or has died, however it died.
//
// It does not survive what also kills the guardian (a machine going down, SIGKILL to every process): then the directory
// stays behind.
type sandbox struct {
	dir      string
	supervisor *exec.Cmd

	mu       sync.Mutex // protects the rest
	lifeline *os.File   // the write end of the guardian's stdin, nil once closed; nobody else may hold it
	names    map[string]int
	programs []*RunningProgram
}

func openSandbox() (*sandbox, error) {
	dir, err := makeSandboxDir()
	if err != nil {
		return nil, err
	}
	d := &sandbox{dir: dir, names: map[string]int{}}
	if err := d.startSupervisor(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the guardian of %s: %w", dir, err), os.RemoveAll(dir))
	}
	return d, nil
}

// makeDenDir prefers /tmp to TMPDIR: a user's TMPDIR may be too long for a socket path, or closed to the account that the
// servers run under.
func makeSandboxDir() (string, error) {
	dir, err := os.MkdirTemp("/tmp", "sluice-")
	if err != nil {
		dir, err = os.MkdirTemp("", "sluice-")
	}
	if err != nil {
		return "", fmt.Errorf("make a directory for private servers: %w", err)
	}
	if len(dir)+len(longestSocket) > maxSocketPath {
		return "", errors.Join(fmt.Errorf("%s is too long for a unix socket below it; make /tmp writable", dir), os.Remove(dir))
	}
	if err := openMarker(dir); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// openMarker creates the file that says "this den is open", and lets the servers' account pass through the directory (but
// not list it) to what it owns below.
func openMarker(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "open"), nil, 0o600); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Chmod(dir, 0o711)
}

// startGuardian gives the guardian a session of its own: neither a ctrl-C nor a closed terminal reaches it.
func (d *sandbox) startSupervisor() error {
	read, write, err := os.Pipe() // both ends are close-on-exec: no other child of ours keeps the guardian waiting
	if err != nil {
		return err
	}
	defer read.Close()
	script := filepath.Join(d.dir, "supervisor.sh")
	if err := os.WriteFile(script, []byte(supervisorScript), 0o600); err != nil {
		return errors.Join(err, write.Close())
	}
	guardian := exec.Command("/bin/sh", script, d.dir)
	guardian.Stdin = read
	guardian.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := guardian.Start(); err != nil {
		return errors.Join(err, write.Close())
	}
	d.lifeline, d.supervisor = write, guardian
	return nil
}

// room makes a directory in the den that belongs to the account.
func (d *sandbox) serverDir(name string, who account) (string, error) {
	path := filepath.Join(d.dir, name)
	if err := os.Mkdir(path, 0o700); err != nil {
		return "", err
	}
	if !who.stepDown {
		return path, nil
	}
	return path, os.Chown(path, who.uid, who.gid)
}

// unique makes a name that no other process of the den has had: name, name-2, name-3, …
func (d *sandbox) uniqueName(name string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names[name]++
	if n := d.names[name]; n > 1 {
		return fmt.Sprintf("%s-%d", name, n)
	}
	return name
}

func (d *sandbox) addProgram(p *RunningProgram) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.programs = append(d.programs, p)
}

func (d *sandbox) listPrograms() []*RunningProgram {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.programs)
}

// tell lets the guardian know of a process. Where that fails the guardian is gone, and close does its work.
func (d *sandbox) report(what, name string, pid int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lifeline != nil {
		fmt.Fprintf(d.lifeline, "%s %s %d\n", what, name, pid)
	}
}

// letGo closes the lifeline; false if it was closed before.
func (d *sandbox) closeLifeline() (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lifeline == nil {
		return false, nil
	}
	err := d.lifeline.Close()
	d.lifeline = nil
	return true, err
}

// close lets the guardian tidy up and waits for it. Calling it twice is harmless.
func (d *sandbox) close() error {
	first, err := d.closeLifeline()
	if !first {
		return nil
	}
	overdue := time.AfterFunc(closeLimit, func() { _ = d.supervisor.Process.Kill() })
	defer overdue.Stop()
	// The guardian's exit code says nothing: what counts is that the directory is gone. If somebody killed it, we tidy.
	_ = d.supervisor.Wait()
	return errors.Join(err, os.RemoveAll(d.dir))
}
