package programs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/db"
	"sluice/db/distribution"
	"sluice/internal/config"
	"sluice/internal/localservers"
	"sluice/pipeline"
)

// MaxWorkers bounds the workers of a stack: more of them share the same processors.
const MaxWorkers = 16

// stopTimeout bounds how long a process may finish its work: above SHUTDOWN_TIMEOUT, after which it gives up by itself.
const stopTimeout = 20 * time.Second

// roles are those of `sluice grants`.
var roles = db.Roles{API: "sluice_api", Worker: "sluice_worker", Operator: "sluice_operator"}

// Options say what to run.
type Options struct {
	Workers   int
	HTTPAddr  string     // where the API answers buyers; port 0 takes any free one
	AdminAddr string     // where the API serves operations; port 0 takes any free one
	Environ   []string   // what the processes inherit, settings included; NAME=value
	OnLine    func(Line) // gets every line of every process, from several goroutines; nil: they are dropped
	Citus     bool       // three nodes of it in the place of Postgres
}

// Stack is a running installation.
type Stack struct {
	Servers *localservers.Servers
	API     *Process
	Workers []*Process
	Config  config.Config // for connections of our own

	environ []string
}

// Start starts everything, API and workers with the Postgres role that each has in production, and returns when the
// API serves and every worker has joined. What was started is stopped again when something fails. say gets the name of
// each step before it begins.
func Start(ctx context.Context, o Options, say func(step string)) (*Stack, error) {
	s := &Stack{}
	if err := s.start(ctx, o, say); err != nil {
		return nil, errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (s *Stack) start(ctx context.Context, o Options, say func(string)) error {
	// Before anything is started: what the processes would refuse is reported at once.
	if _, err := settingsOf(append(slices.Clone(o.Environ), "DATABASE_URL=postgres://later",
		"REDIS_URL=redis://later")); err != nil {
		return err
	}
	say("servers")
	servers, err := localservers.StartKind(ctx, localservers.Kind{Citus: o.Citus})
	if err != nil {
		return err
	}
	s.Servers = servers
	s.environ = append(slices.Clone(o.Environ),
		"DATABASE_URL="+servers.Postgres.URL(), "REDIS_URL="+servers.Redis.URL(), "DURABILITY=fsync",
		"AUTH_MODE=dev", "LOG_FORMAT=json")
	if s.Config, err = settingsOf(s.environ); err != nil {
		return err
	}
	say("schema")
	if err := db.Migrate(ctx, servers.Postgres.URL()); err != nil {
		return err
	}
	if o.Citus {
		if _, err := distribution.Apply(ctx, servers.Postgres.URL()); err != nil {
			return err
		}
	}
	if err := db.Grant(ctx, servers.Postgres.URL(), roles); err != nil {
		return err
	}
	say("programs")
	if err := s.launch(o); err != nil {
		return err
	}
	return s.await(ctx)
}

func (s *Stack) launch(o Options) error {
	if o.OnLine == nil {
		o.OnLine = func(Line) {}
	}
	start := func(name, command, role string, settings ...string) (*Process, error) {
		settings = append(settings, "DATABASE_URL="+s.Servers.Postgres.URLAs(role))
		return Launch(s.Servers, Program{
			Name: name, Args: []string{command}, Environ: append(slices.Clone(s.environ),
				settings...), OnLine: o.OnLine,
		})
	}
	var err error
	if s.API, err = start("api", "api", roles.API, "HTTP_ADDR="+o.HTTPAddr, "ADMIN_ADDR="+o.AdminAddr); err != nil {
		return err
	}
	for i := range o.Workers {
		// An empty ADMIN_ADDR is any free port, also when ours is set for somebody else.
		worker, err := start(fmt.Sprintf("worker-%d", i+1), "worker", roles.Worker, "ADMIN_ADDR=")
		if err != nil {
			return err
		}
		s.Workers = append(s.Workers, worker)
	}
	return nil
}

func (s *Stack) await(ctx context.Context) error {
	for _, p := range append([]*Process{s.API}, s.Workers...) {
		if err := p.Await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends everything in the order in which orders flow: the API, so that nothing new comes in; the workers, which
// finish what they have; the servers. Processes that have ended are fine. When ctx ends first, the rest is killed.
func (s *Stack) Stop(ctx context.Context) error {
	var errs []error
	if s.API != nil {
		errs = append(errs, s.API.Stop(ctx))
	}
	errs = append(errs, stopAll(ctx, s.Workers))
	if s.Servers != nil {
		errs = append(errs, s.Servers.Close())
	}
	return errors.Join(errs...)
}

func stopAll(ctx context.Context, processes []*Process) error {
	errs := make([]error, len(processes))
	var stopping sync.WaitGroup
	for i, p := range processes {
		stopping.Go(func() { errs[i] = p.Stop(ctx) })
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// Stop asks the process to end and waits for it; one that takes too long, or longer than ctx, is killed and the error
// says so.
func (p *Process) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := p.program.Stop(ctx); err != nil {
		return fmt.Errorf("stop %s: %w", p.Name, err)
	}
	return nil
}

// settingsOf reads the settings in an environment. Its error is KindInvalid and names all that are wrong.
func settingsOf(environ []string) (config.Config, error) {
	cfg, err := config.Load(config.CLI, nil, lookup(environ), io.Discard)
	if err != nil {
		return cfg, pipeline.Errorf(pipeline.KindInvalid, "these settings are wrong: %s",
			strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return cfg, nil
}

// lookup makes a getenv of an environment; of two lines with one name the later one counts, as it does for a process.
func lookup(environ []string) func(string) string {
	values := make(map[string]string, len(environ))
	for _, line := range environ {
		name, value, _ := strings.Cut(line, "=")
		values[name] = value
	}
	return func(name string) string { return values[name] }
}
