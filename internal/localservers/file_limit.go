package localservers

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
)

// LimitFiles forbids the server's processes to write beyond a size in bytes in any file, which is a full disk to them:
// the write fails or is cut short, and no earlier data is lost. LiftLimit gives the disk room again. It works for every
// user on Linux; elsewhere it fails with errors.ErrUnsupported in the chain. A restart lifts the limit.
func (s *server) LimitFiles(bytes int64) error { return s.limitFiles(strconv.FormatInt(bytes, 10)) }

// LiftLimit ends the effect of LimitFiles.
func (s *server) LiftLimit() error { return s.limitFiles("unlimited") }

// limitFiles sets the soft limit only, so that it can be lifted. The tool runs as the servers' account: root in a
// container may not change the limits of other accounts' processes.
func (s *server) limitFiles(size string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return fmt.Errorf("limit the files of %s: %w", s.spec.name, errNotRunning)
	}
	tool, err := exec.LookPath("prlimit")
	if err != nil {
		return fmt.Errorf("limit the files of %s: %w (%w)", s.spec.name, errors.ErrUnsupported, err)
	}
	set := func(pid int) error {
		cmd := exec.Command(tool, "--pid", strconv.Itoa(pid), "--fsize="+size+":")
		cmd.SysProcAttr = s.spec.account.attributes()
		output, err := cmd.CombinedOutput()
		if err == nil || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return nil // or it has exited meanwhile
		}
		return fmt.Errorf("limit the files of %s: %w: %s", s.spec.name, err, output)
	}
	errs := []error{set(s.proc.pid())} // first: later children inherit it
	children, err := childrenOf(s.proc.pid())
	for _, pid := range children {
		errs = append(errs, set(pid))
	}
	return errors.Join(append(errs, err)...)
}
