package localservers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// killLimit bounds the wait for a process after SIGKILL. The kernel needs milliseconds; only a hung disk takes longer.
const killLimit = 10 * time.Second

// pipeLimit bounds the wait for the output of a process that has exited but left its pipes to a child of its own.
const pipeLimit = time.Second

// wrapper records its process id on descriptor 3, checks that the sandbox ($0) is still open, and becomes the command.
// supervisor.sh explains why. A file that may not grow (LimitFiles) is an error of the write, as a full disk is, not a
// signal.
const wrapper = `trap '' XFSZ; echo $$ >&3 && [ -e "$0/open" ] && exec "$@" 3>&-`

// errNotRunning is returned for signalling a process that has exited.
var errNotRunning = errors.New("not running")

// command is what to run in a sandbox.
type command struct {
	name    string // of its pid file; supervisor.sh treats `postgres` specially
	argv    []string
	dir     string
	env     []string
	account account
	stdout  io.Writer
	stderr  io.Writer
}

// process is one child in a sandbox. Its goroutine reaps it and ends with it.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed once the process is reaped and no longer listed in the sandbox
	err    error         // of Wait; valid after exited
}

func (s *sandbox) start(c command) (*process, error) {
	// We open the file, not the child: the sandbox's directory belongs to us alone, so no other account can list a
	// process there for the supervisor to kill.
	pidFile, err := os.Create(filepath.Join(s.dir, c.name+".pid"))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	defer pidFile.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-c", wrapper, s.dir}, c.argv...)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.dir, c.env, c.stdout, c.stderr
	cmd.ExtraFiles = []*os.File{pidFile}
	cmd.SysProcAttr = c.account.attributes()
	cmd.WaitDelay = pipeLimit
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", c.name, err), os.Remove(pidFile.Name()))
	}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	s.report("started", c.name, p.pid())
	go s.reap(p, c.name, pidFile.Name())
	return p, nil
}

// reap takes the process off both lists as soon as its number may be reused.
func (s *sandbox) reap(p *process, name, pidFile string) {
	defer close(p.exited)
	p.err = p.cmd.Wait()
	s.report("ended", name, p.pid())
	_ = os.Remove(pidFile)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

func (p *process) signal(s syscall.Signal) error {
	if !p.running() {
		return errNotRunning
	}
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s to process %d: %w", s, p.pid(), err)
	}
	return nil
}

// kill ends the process with SIGKILL and waits until it is reaped. Killing one that has exited is harmless.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, errNotRunning) {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(killLimit):
		return fmt.Errorf("process %d did not end within %s of SIGKILL", p.pid(), killLimit)
	}
}

// stop asks the process to exit and waits; when ctx ends first, the process is killed and ctx's error returned.
func (p *process) stop(ctx context.Context, ask syscall.Signal) error {
	if err := p.signal(ask); err != nil {
		if errors.Is(err, errNotRunning) {
			return nil
		}
		return err
	}
	_ = p.signal(syscall.SIGCONT) // a paused process can't act on a signal
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("process %d did not stop in time: %w", p.pid(), ctx.Err()), p.kill())
	}
}

// result waits for a process to exit; when ctx ends first, the process is killed and ctx's error returned.
func (p *process) result(ctx context.Context) error {
	select {
	case <-p.exited:
		return p.err
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.kill())
	}
}
