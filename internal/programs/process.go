package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"sluice/internal/localservers"
)

// The records by which a process says that it is ready, as package process and package pipeline write them.
const (
	messageAPIListening = "api listening"     // url: where buyers' requests go
	messageWorkerJoined = "worker joined"     // worker: the consumer's name
	messageWorkerAdmin  = "worker operations" // url: health and metrics
	messageAPIAdmin     = "api operations"    // url: health and metrics
)

const (
	maxLine     = 64 << 10         // bytes of one line; a longer one is cut into several
	keptLines   = 8                // last serious lines, for the error that says why a process ended
	joinTimeout = 30 * time.Second // from start to ready; takes a fraction of a second
)

// Process is a running API or worker.
type Process struct {
	Name string // api, worker-1, worker-2, …

	program *localservers.RunningProgram
	ready   chan struct{} // closed when it serves (api) or has joined (worker)
	onLine  func(Line)

	mu       sync.Mutex // protects the rest
	partial  []byte     // of a line
	url      string
	admin    string
	consumer string
	serious  []Line
}

// Program says what to start.
type Program struct {
	Name    string     // of the process, in logs
	Path    string     // of the executable, cmd/api or cmd/worker; empty: this binary, which calls Serve
	Args    []string   // for this binary `api` or `worker`
	Environ []string   // the whole environment, settings included
	OnLine  func(Line) // gets every line that the process writes
}

// Launch starts a program beside some servers. It returns before the process is ready, see Await.
func Launch(servers *localservers.Servers, program Program) (*Process, error) {
	var err error
	if program.Path == "" {
		if program.Path, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("find this program's own file: %w", err)
		}
	}
	p := newProcess(program.Name, program.OnLine)
	p.program, err = servers.Run(localservers.Program{
		Name: program.Name, Path: program.Path, Args: program.Args, Stdout: p, Stderr: p,
		// Beside the servers' data, unless it says otherwise: what the program accepts ends with them.
		Env: append([]string{"ACCEPT_JOURNAL=" + filepath.Join(servers.Dir(), "accept-journal")}, program.Environ...),
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

func newProcess(name string, onLine func(Line)) *Process {
	return &Process{Name: name, ready: make(chan struct{}), onLine: onLine}
}

// URL is where the API answers buyers; empty for a worker.
func (p *Process) URL() string { return p.fact(&p.url) }

// AdminURL is where the process serves health and metrics.
func (p *Process) AdminURL() string { return p.fact(&p.admin) }

// Consumer is a worker's name in the consumer group; empty for the API.
func (p *Process) Consumer() string { return p.fact(&p.consumer) }

func (p *Process) fact(fact *string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return *fact
}

// PID of the process.
func (p *Process) PID() int { return p.program.PID() }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.program.Exited() }

// Pause stops the process in its tracks, Resume lets it go on, Kill ends it as a crash would.
func (p *Process) Pause() error { return p.program.Pause() }

// Resume lets a paused process go on.
func (p *Process) Resume() error { return p.program.Resume() }

// Kill ends the process with SIGKILL and returns when it is gone.
func (p *Process) Kill() error { return p.program.Kill() }

// ErrAddressInUse says that a process could not start because another one has its address.
var ErrAddressInUse = errors.New("an address is in use")

// Await returns when the process is ready. An error says why it ended.
func (p *Process) Await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	select {
	case <-p.ready:
		return nil
	case <-p.program.Exited():
		why := p.why()
		if strings.Contains(why, syscall.EADDRINUSE.Error()) {
			return fmt.Errorf("%w: %s ended while starting: %s", ErrAddressInUse, p.Name, why)
		}
		return fmt.Errorf("%s ended while starting: %s", p.Name, why)
	case <-ctx.Done():
		return fmt.Errorf("%s was not ready in time: %w", p.Name, context.Cause(ctx))
	}
}

// why is what the process last reported as an error, or else how it ended. Warnings are no causes: they come at each
// start.
func (p *Process) why() string {
	p.mu.Lock()
	var errs []string
	for i := range p.serious {
		if p.serious[i].Level != "WARN" {
			errs = append(errs, p.serious[i].Text())
		}
	}
	p.mu.Unlock()
	if len(errs) > 0 {
		return strings.Join(errs, "; ")
	}
	if err := p.program.Err(); err != nil {
		return err.Error()
	}
	return "exit status 0"
}

// Write takes what the process writes. It is called from one goroutine, that of the pipe.
func (p *Process) Write(text []byte) (int, error) {
	p.mu.Lock()
	var lines [][]byte
	p.partial = append(p.partial, text...)
	for {
		end := bytes.IndexByte(p.partial, '\n')
		if end < 0 && len(p.partial) >= maxLine {
			end = maxLine - 1
		}
		if end < 0 {
			break
		}
		lines = append(lines, bytes.Clone(p.partial[:end]))
		p.partial = p.partial[end+1:]
	}
	p.mu.Unlock()
	for _, raw := range lines {
		p.take(parseLine(p.Name, raw))
	}
	return len(text), nil
}

func (p *Process) take(line Line) {
	p.learn(&line)
	p.onLine(line)
}

func (p *Process) learn(line *Line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if line.Serious() {
		p.serious = append(p.serious, *line)
		p.serious = p.serious[max(0, len(p.serious)-keptLines):]
	}
	switch line.Message {
	case messageAPIListening:
		p.url = line.Field("url")
		p.isReady()
	case messageWorkerJoined:
		p.consumer = line.Field("worker")
		p.isReady()
	case messageWorkerAdmin, messageAPIAdmin:
		p.admin = line.Field("url")
	}
}

// isReady needs mu. A worker that loses its Redis joins once only, but the log is not ours to trust.
func (p *Process) isReady() {
	select {
	case <-p.ready:
	default:
		close(p.ready)
	}
}
