package localservers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// startLimit bounds a server's start, recovery after a kill included. It takes tens of milliseconds; a busy machine
	// with a slow disk may take seconds.
	startLimit = 30 * time.Second
	// stopLimit bounds an orderly stop: Postgres writes a checkpoint.
	stopLimit = 30 * time.Second
	// pollEvery is how often a starting server is probed.
	pollEvery = 5 * time.Millisecond
	// probeLimit bounds one probe.
	probeLimit = 2 * time.Second
	// logTail is how much of a server's log goes into an error, in bytes: its last lines.
	logTail = 2048
)

// server is what Redis and Postgres have in common: one process at a time on one data directory.
type server struct {
	sandbox     *sandbox
	ownsSandbox bool // the sandbox is this server's own and closes with it
	dir         string
	log         string // path; every start appends the process' stdout and stderr
	spec        command
	clock       string                          // path of the file that moves the clock; empty: the machine's own
	stop        syscall.Signal                  // requests an orderly stop that keeps the data
	probe       func(ctx context.Context) error // nil once the server answers

	saves atomic.Int64 // copies that were made of its data; part of their names

	mu   sync.Mutex // protects proc, and serializes starts, stops and kills
	proc *process
}

// startAlone starts a server in a sandbox of its own.
func startAlone(start func(*sandbox) (*server, error)) error {
	box, err := openSandbox()
	if err != nil {
		return err
	}
	s, err := start(box)
	if err != nil {
		return errors.Join(err, box.close())
	}
	s.ownsSandbox = true
	return nil
}

// prepare makes the directory of a server that is yet to be started, and sets what all servers have in common.
func (s *server) prepare(box *sandbox, name string) error {
	account, err := serverAccount()
	if err != nil {
		return err
	}
	s.sandbox = box
	s.dir, err = box.serverDir(name, account)
	s.log = filepath.Join(s.dir, "server.log")
	s.spec = command{name: name, dir: s.dir, env: serverEnv(s.dir), account: account}
	return err
}

// closeAfter closes the server's own sandbox, if it has one, after the server has ended with err.
func (s *server) closeAfter(err error) error {
	if !s.ownsSandbox {
		return err
	}
	return errors.Join(err, s.sandbox.close())
}

// PID of the running process, or 0.
func (s *server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return 0
	}
	return s.proc.pid()
}

// Dir is the directory of the server's data, log and socket.
func (s *server) Dir() string { return s.dir }

// Log returns the last lines of the server's own log.
func (s *server) Log() string { return tail(s.log) }

// up needs mu.
func (s *server) running() bool { return s.proc != nil && s.proc.running() }

// start needs mu, or a server that is not shared yet. It returns once the server answers.
func (s *server) start(ctx context.Context) error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	spec := s.spec
	spec.stdout, spec.stderr = log, log
	if s.proc, err = s.sandbox.start(spec); err != nil {
		return err
	}
	if err := s.await(ctx, "no answer", s.proc, s.probe); err != nil {
		return errors.Join(err, s.killAll())
	}
	return nil
}

// await probes the server until the probe returns nil, for startLimit at most or until proc, unless it is nil, has
// exited. failure says what is wrong otherwise.
func (s *server) await(ctx context.Context, failure string, proc *process, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("%s within %s", failure, startLimit))
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var exited <-chan struct{}
	if proc != nil {
		exited = proc.exited
	}
	for {
		once, done := context.WithTimeout(ctx, probeLimit)
		err := probe(once)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("%s ended while starting (%w); its log ends:\n%s", s.spec.name, proc.err, s.Log())
		case <-ctx.Done():
			return fmt.Errorf("%s: %w (last try: %w); its log ends:\n%s", s.spec.name, context.Cause(ctx), err, s.Log())
		case <-tick.C:
		}
	}
}

func containsAll(text string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}

// Kill ends the server as a power cut would (SIGKILL to all of its processes) and returns when it is gone.
func (s *server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return nil
	}
	return s.killAll()
}

// killAll needs mu. Postgres' backends would outlive their postmaster for a moment and could still commit, unlike after
// a power cut.
func (s *server) killAll() error {
	children, err := s.pauseMain()
	if errors.Is(err, errNotRunning) {
		return nil
	}
	err = errors.Join(err, s.proc.kill())
	for _, pid := range children {
		err = errors.Join(err, signalChild(pid, syscall.SIGKILL))
	}
	return errors.Join(err, awaitExit(children, killLimit))
}

// Pause suspends all of the server's processes (SIGSTOP): connections stay open and nothing answers.
func (s *server) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return fmt.Errorf("pause %s: %w", s.spec.name, errNotRunning)
	}
	children, err := s.pauseMain()
	if err != nil {
		return err
	}
	err = os.WriteFile(s.paused(), []byte(strings.Trim(fmt.Sprint(children), "[]")), 0o600)
	for _, pid := range children {
		err = errors.Join(err, signalChild(pid, syscall.SIGSTOP))
	}
	return err
}

// paused is the file that lists the children that Pause suspended, for the supervisor: one that can't act on a signal
// takes 5 s to end.
func (s *server) paused() string { return filepath.Join(s.sandbox.dir, s.spec.name+".paused") }

// pauseMain needs mu. It suspends the main process first, so that the list of its children stays complete.
func (s *server) pauseMain() ([]int, error) {
	if err := s.proc.signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	return childrenOf(s.proc.pid())
}

// Resume continues a paused server (SIGCONT).
func (s *server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return fmt.Errorf("resume %s: %w", s.spec.name, errNotRunning)
	}
	return s.resume()
}

// resume needs mu. It has no effect on a process that is not paused.
func (s *server) resume() error {
	children, err := childrenOf(s.proc.pid())
	for _, pid := range children {
		err = errors.Join(err, signalChild(pid, syscall.SIGCONT))
	}
	return errors.Join(err, s.proc.signal(syscall.SIGCONT), os.RemoveAll(s.paused()))
}

// Stop ends the server in an orderly way and keeps its data for Restart. When ctx ends first, or 30 s have passed, the
// server is killed and the error says so. Stopping a server that does not run is harmless.
func (s *server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end(ctx, s.stop, stopLimit)
}

// Restart starts the server again on the same data directory and the same socket, after an orderly stop if it still
// runs. It returns once the server answers.
func (s *server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.end(ctx, s.stop, stopLimit); err != nil {
		return err
	}
	return s.start(ctx)
}

// end needs mu.
func (s *server) end(ctx context.Context, ask syscall.Signal, limit time.Duration) error {
	if !s.running() {
		return nil
	}
	if err := s.resume(); err != nil && !errors.Is(err, errNotRunning) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return s.proc.stop(ctx, ask)
}

// tail returns the end of a file, or why it can't be read.
func tail(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return lastLines(string(content))
}

// lastLines shortens a text to its last logTail bytes, from the start of a line.
func lastLines(text string) string {
	text = strings.TrimSpace(text)
	if len(text) <= logTail {
		return text
	}
	_, text, _ = strings.Cut(text[len(text)-logTail:], "\n")
	return text
}
