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

// longestSocket is the longest path of a socket inside a sandbox.
const longestSocket = "/postgres/.s.PGSQL.5432"

// closeLimit bounds how long a sandbox takes to close: the supervisor's two waits of 10 s each, and some slack.
const closeLimit = 25 * time.Second

// sandbox is a directory in which private servers live, with the supervisor process that ends them and removes the
// directory once this process has closed the sandbox or has died, in whatever way.
//
// The directory stays behind when the supervisor is killed as well (the machine goes down, SIGKILL to every process).
type sandbox struct {
	dir        string
	supervisor *exec.Cmd

	mu       sync.Mutex // protects the rest
	lifeline *os.File   // the write end of the supervisor's stdin, nil once closed; no other process may have it
	names    map[string]int
	programs []*RunningProgram
}

func openSandbox() (*sandbox, error) {
	dir, err := makeSandboxDir()
	if err != nil {
		return nil, err
	}
	s := &sandbox{dir: dir, names: map[string]int{}}
	if err := s.startSupervisor(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the supervisor of %s: %w", dir, err), os.RemoveAll(dir))
	}
	return s, nil
}

// makeSandboxDir prefers /tmp to TMPDIR: a user's TMPDIR may be too long for a socket path, or inaccessible to the
// servers' account.
func makeSandboxDir() (string, error) {
	dir, err := os.MkdirTemp("/tmp", "sluice-")
	if err != nil {
		dir, err = os.MkdirTemp("", "sluice-")
	}
	if err != nil {
		return "", fmt.Errorf("make a directory for private servers: %w", err)
	}
	if len(dir)+len(longestSocket) > maxSocketPath {
		err := fmt.Errorf("%s is too long for a unix socket below it; make /tmp writable", dir)
		return "", errors.Join(err, os.Remove(dir))
	}
	if err := openMarker(dir); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// openMarker creates the file that marks the sandbox as open, and lets the servers' account pass through the directory
// (but not list it) to what it owns inside.
func openMarker(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "open"), nil, 0o600); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Chmod(dir, 0o711)
}

// startSupervisor gives the supervisor a session of its own: neither a ctrl-C nor a closed terminal reaches it.
func (s *sandbox) startSupervisor() error {
	read, write, err := os.Pipe() // both ends are close-on-exec: no other child keeps the supervisor waiting
	if err != nil {
		return err
	}
	defer read.Close()
	script := filepath.Join(s.dir, "supervisor.sh")
	if err := os.WriteFile(script, []byte(supervisorScript), 0o600); err != nil {
		return errors.Join(err, write.Close())
	}
	supervisor := exec.Command("/bin/sh", script, s.dir)
	supervisor.Stdin = read
	supervisor.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := supervisor.Start(); err != nil {
		return errors.Join(err, write.Close())
	}
	s.lifeline, s.supervisor = write, supervisor
	return nil
}

// serverDir makes a directory in the sandbox that belongs to the account.
func (s *sandbox) serverDir(name string, who account) (string, error) {
	path := filepath.Join(s.dir, name)
	if err := os.Mkdir(path, 0o700); err != nil {
		return "", err
	}
	if !who.stepDown {
		return path, nil
	}
	return path, os.Chown(path, who.uid, who.gid)
}

// uniqueName returns a name that no other process of the sandbox has had: name, name-2, name-3, …
func (s *sandbox) uniqueName(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[name]++
	if n := s.names[name]; n > 1 {
		return fmt.Sprintf("%s-%d", name, n)
	}
	return name
}

func (s *sandbox) addProgram(p *RunningProgram) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.programs = append(s.programs, p)
}

func (s *sandbox) listPrograms() []*RunningProgram {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.programs)
}

// report sends the start or end of a process to the supervisor. Where that fails the supervisor is gone, and close does
// its work.
func (s *sandbox) report(what, name string, pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lifeline != nil {
		fmt.Fprintf(s.lifeline, "%s %s %d\n", what, name, pid)
	}
}

// closeLifeline returns false if the lifeline was closed before.
func (s *sandbox) closeLifeline() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lifeline == nil {
		return false, nil
	}
	err := s.lifeline.Close()
	s.lifeline = nil
	return true, err
}

// close makes the supervisor clean up and waits for it. Calling it twice is harmless.
func (s *sandbox) close() error {
	first, err := s.closeLifeline()
	if !first {
		return nil
	}
	overdue := time.AfterFunc(closeLimit, func() { _ = s.supervisor.Process.Kill() })
	defer overdue.Stop()
	// The supervisor's exit code says nothing: what counts is that the directory is gone. If the supervisor was killed,
	// we clean up.
	_ = s.supervisor.Wait()
	return errors.Join(err, os.RemoveAll(s.dir))
}
