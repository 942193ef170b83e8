package testkit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"sluice/internal/localservers"
)

const (
	// startLimit bounds the start of a shared server: initdb on a busy machine, or a container whose image is pulled.
	startLimit = 3 * time.Minute
	// callLimit bounds one call to a running server.
	callLimit = 30 * time.Second
)

// errAbsent means that a source has no server to offer, so the next one is tried.
var errAbsent = errors.New("no server")

// running is a server that tests can use.
type runningServer struct {
	url   string
	close func() error
}

// source is one way to get a server.
type source struct {
	name            string // as in TEST_SERVERS
	redis, postgres func(context.Context) (runningServer, error)
}

// sharedConnections is room for all tests of a package at once, each with several pools: a machine with many cores runs
// as many tests side by side.
const sharedConnections = "max_connections=800"

// sources are tried in this order.
var sources = []source{
	{"url", fromEnv("TEST_REDIS_URL"), fromEnv("TEST_DATABASE_URL")},
	{"local", local(localservers.StartRedis), local(localservers.StartPostgres, sharedConnections)},
	{"containers", containerRedis, containerPostgres},
}

// The servers that all tests of this process share.
var (
	sharedRedis    = shared{start: func(ctx context.Context, s source) (runningServer, error) { return s.redis(ctx) }}
	sharedPostgres = shared{start: func(ctx context.Context, s source) (runningServer, error) { return s.postgres(ctx) }}
	sharedCluster  = shared{start: func(ctx context.Context, _ source) (runningServer, error) { return startCluster(ctx) }}
)

// shared is a server that is started on first use.
type shared struct {
	start func(context.Context, source) (runningServer, error)

	mu      sync.Mutex // protects the rest
	started bool
	server  runningServer
	err     error
}

// url is the server's. The test is skipped where there is no server, and fails where one did not start.
func (s *shared) url(t testing.TB) string {
	t.Helper()
	s.mu.Lock()
	if !s.started {
		s.started = true
		s.server, s.err = startFirst(s.start)
	}
	server, err := s.server, s.err
	s.mu.Unlock()
	skipWithout(t, err)
	return server.url
}

func (s *shared) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server.close == nil {
		return nil
	}
	end := s.server.close
	s.server = runningServer{}
	return end()
}

func closeShared() error {
	return errors.Join(dropTemplate(), sharedRedis.close(), sharedPostgres.close(), sharedCluster.close(),
		closeDistributed())
}

// startFirst tries the allowed sources in turn.
func startFirst(start func(context.Context, source) (runningServer, error)) (runningServer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	allowed, err := allowedSources()
	if err != nil {
		return runningServer{}, err
	}
	var absences []error
	for _, s := range allowed {
		server, err := start(ctx, s)
		if !errors.Is(err, errAbsent) {
			return server, err
		}
		absences = append(absences, fmt.Errorf("%s: %w", s.name, err))
	}
	return runningServer{}, errors.Join(absences...)
}

func allowedSources() ([]source, error) {
	only := os.Getenv("TEST_SERVERS")
	if only == "" {
		return sources, nil
	}
	allowed := slices.DeleteFunc(slices.Clone(sources), func(s source) bool { return s.name != only })
	if len(allowed) == 0 {
		return nil, fmt.Errorf("TEST_SERVERS=%s is none of url, local, containers", only)
	}
	return allowed, nil
}

// skipWithout ends the test when err is set: skipped when no server is available, unless servers are required.
func skipWithout(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, errAbsent) && !serversRequired():
		t.Skipf("needs a real server: %v", err)
	default:
		t.Fatalf("needs a real server: %v", err)
	}
}

func serversRequired() bool {
	return isSet("CI") || isSet("SLUICE_REQUIRE_SERVERS")
}

func isSet(name string) bool {
	value := os.Getenv(name)
	return value != "" && value != "0" && value != "false"
}

func fromEnv(name string) func(context.Context) (runningServer, error) {
	return func(context.Context) (runningServer, error) {
		url := os.Getenv(name)
		if url == "" {
			return runningServer{}, fmt.Errorf("%w: %s is not set", errAbsent, name)
		}
		return runningServer{url: url, close: func() error { return nil }}, nil
	}
}

// localServer is a server of package localservers.
type localServer interface {
	URL() string
	Close() error
}

type startFunc[T localServer] func(ctx context.Context, config ...string) (T, error)

var startCluster = local(localservers.StartRedisCluster)

// local returns a source's function that runs the machine's own binary.
func local[T localServer](
	start startFunc[T], config ...string,
) func(context.Context) (runningServer, error) {
	return func(ctx context.Context) (runningServer, error) {
		server, err := start(ctx, config...)
		if err != nil {
			return runningServer{}, localError(err)
		}
		return runningServer{url: server.URL(), close: server.Close}, nil
	}
}

func localError(err error) error {
	if errors.Is(err, localservers.ErrNoBinary) {
		return fmt.Errorf("%w: %w", errAbsent, err)
	}
	return err
}
