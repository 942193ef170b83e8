package localservers

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"syscall"
)

// programName is what fits into a file name and into a line for the supervisor.
var programName = regexp.MustCompile(`^[A-Za-z0-9.-]{1,64}$`)

// Program is a program of ours (an API, a worker) that runs beside private servers.
type Program struct {
	Name           string   // letters, digits, dots and dashes; need not be unique
	Path           string   // of the executable
	Args           []string // without the program's own name
	Dir            string   // working directory; "" is ours
	Env            []string // its whole environment; nil is ours
	Stdout, Stderr io.Writer
}

// RunningProgram is a started Program. It ends with the servers it was started beside, if not before.
type RunningProgram struct {
	proc *process
}

// Run starts a program that ends with the servers: at Close, or when this process dies in whatever way. It runs under
// our own account, in a session of its own, so a ctrl-C in the terminal does not reach it: Stop does.
func (s *Servers) Run(p Program) (*RunningProgram, error) {
	if !programName.MatchString(p.Name) {
		return nil, fmt.Errorf("program name %q: use letters, digits, dots and dashes", p.Name)
	}
	proc, err := s.sandbox.start(command{
		name: "program-" + s.sandbox.uniqueName(p.Name), argv: append([]string{p.Path}, p.Args...),
		dir: p.Dir, env: p.Env, stdout: p.Stdout, stderr: p.Stderr,
	})
	if err != nil {
		return nil, err
	}
	running := &RunningProgram{proc: proc}
	s.sandbox.addProgram(running)
	return running, nil
}

// PID of the program; after its exit the number may be another process'.
func (r *RunningProgram) PID() int { return r.proc.pid() }

// Exited is closed when the program has exited and is reaped.
func (r *RunningProgram) Exited() <-chan struct{} { return r.proc.exited }

// Err returns how the program ended: nil for exit code 0, otherwise an *exec.ExitError. It waits for the exit.
func (r *RunningProgram) Err() error {
	<-r.proc.exited
	return r.proc.err
}

// Kill ends the program with SIGKILL and returns when it is gone.
func (r *RunningProgram) Kill() error { return r.proc.kill() }

// Stop asks the program to exit (SIGTERM) and waits for it; when ctx ends first, the program is killed and the error
// says so.
func (r *RunningProgram) Stop(ctx context.Context) error { return r.proc.stop(ctx, syscall.SIGTERM) }

// Pause suspends the program (SIGSTOP).
func (r *RunningProgram) Pause() error { return r.proc.signal(syscall.SIGSTOP) }

// Resume continues a paused program (SIGCONT).
func (r *RunningProgram) Resume() error { return r.proc.signal(syscall.SIGCONT) }
