package crew

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"sluice/internal/localservers"
)

// The records by which a member says that it is ready, as package process and package pipeline write them.
const (
	messageAPIListening = "api listening"     // url: where buyers' requests go
	messageWorkerJoined = "worker joined"     // worker: the consumer's name
	messageWorkerAdmin  = "worker operations" // url: health and metrics
	messageAPIAdmin     = "api operations"    // url: health and metrics
)

const (
	maxLine     = 64 << 10         // bytes of one line; a longer one is cut into several
	keptLines   = 8                // last serious lines, for the error that says why a member ended
	joinTimeout = 30 * time.Second // from start to ready; takes a fraction of a second
)

// Member is one process of the crew.
type Member struct {
	Name string // api, worker-1, worker-2, …

	program *localservers.RunningProgram
	ready   chan struct{} // closed when it serves (api) or has joined (worker)
	hear    func(Line)

	mu       sync.Mutex // protects the rest
	partial  []byte     // of a line
	url      string
	admin    string
	consumer string
	serious  []string
}

// Launch starts one program beside some servers: command is `api` or `worker`, environ its whole environment, settings
// included. The program is this binary again, which calls Serve. It returns before the member is ready, see Await; hear gets
// every line that it writes.
func Launch(servers *localservers.Servers, name, command string, environ []string, hear func(Line)) (*Member, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program's own file: %w", err)
	}
	return LaunchFile(servers, name, self, []string{command}, environ, hear)
}

// LaunchFile is Launch for an executable of its own: cmd/api, or cmd/worker.
func LaunchFile(servers *localservers.Servers, name, path string, args, environ []string, hear func(Line)) (*Member, error) {
	m := newMember(name, hear)
	var err error
	m.program, err = servers.Run(localservers.Program{
		Name: name, Path: path, Args: args, Env: environ, Stdout: m, Stderr: m,
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

func newMember(name string, hear func(Line)) *Member {
	return &Member{Name: name, ready: make(chan struct{}), hear: hear}
}

// URL is where the API answers buyers; empty for a worker.
func (m *Member) URL() string { return m.told(&m.url) }

// AdminURL is where the member serves health and metrics.
func (m *Member) AdminURL() string { return m.told(&m.admin) }

// Consumer is a worker's name in the consumer group; empty for the API.
func (m *Member) Consumer() string { return m.told(&m.consumer) }

func (m *Member) told(fact *string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *fact
}

// PID of the process.
func (m *Member) PID() int { return m.program.PID() }

// Exited is closed when the process has ended.
func (m *Member) Exited() <-chan struct{} { return m.program.Exited() }

// Pause stops the process in its tracks, Resume lets it go on, Kill ends it as a crash would.
func (m *Member) Pause() error { return m.program.Pause() }

// Resume lets a paused process go on.
func (m *Member) Resume() error { return m.program.Resume() }

// Kill ends the process with SIGKILL and returns when it is gone.
func (m *Member) Kill() error { return m.program.Kill() }

// Await returns when the member is ready. An error says why it ended.
func (m *Member) Await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	select {
	case <-m.ready:
		return nil
	case <-m.program.Exited():
		return fmt.Errorf("%s ended while starting: %s", m.Name, m.why())
	case <-ctx.Done():
		return fmt.Errorf("%s was not ready in time: %w", m.Name, context.Cause(ctx))
	}
}

// why is what the member last complained about, or else how it ended.
func (m *Member) why() string {
	m.mu.Lock()
	lines := strings.Join(m.serious, "; ")
	m.mu.Unlock()
	if lines != "" {
		return lines
	}
	if err := m.program.Err(); err != nil {
		return err.Error()
	}
	return "exit status 0"
}

// Write takes what the process writes. It is called from one goroutine, that of the pipe.
func (m *Member) Write(p []byte) (int, error) {
	m.mu.Lock()
	var lines [][]byte
	m.partial = append(m.partial, p...)
	for {
		end := bytes.IndexByte(m.partial, '\n')
		if end < 0 && len(m.partial) >= maxLine {
			end = maxLine - 1
		}
		if end < 0 {
			break
		}
		lines = append(lines, bytes.Clone(m.partial[:end]))
		m.partial = m.partial[end+1:]
	}
	m.mu.Unlock()
	for _, raw := range lines {
		m.take(parseLine(m.Name, raw))
	}
	return len(p), nil
}

func (m *Member) take(line Line) {
	m.learn(&line)
	m.hear(line)
}

func (m *Member) learn(line *Line) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if line.Serious() {
		m.serious = append(m.serious, line.Text())
		m.serious = m.serious[max(0, len(m.serious)-keptLines):]
	}
	switch line.Message {
	case messageAPIListening:
		m.url = line.Field("url")
		m.isReady()
	case messageWorkerJoined:
		m.consumer = line.Field("worker")
		m.isReady()
	case messageWorkerAdmin, messageAPIAdmin:
		m.admin = line.Field("url")
	}
}

// isReady needs mu. A worker that loses its Redis joins once only, but the log is not ours to trust.
func (m *Member) isReady() {
	select {
	case <-m.ready:
	default:
		close(m.ready)
	}
}
