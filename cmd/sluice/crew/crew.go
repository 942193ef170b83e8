package crew

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
	"sluice/internal/config"
	"sluice/internal/localservers"
	"sluice/pipeline"
)

// MaxWorkers bounds the workers of a crew: more of them share the same processors.
const MaxWorkers = 16

// stopTimeout bounds how long a member may finish its work: above SHUTDOWN_TIMEOUT, after which it gives up by itself.
const stopTimeout = 20 * time.Second

// Options say what to run.
type Options struct {
	Workers   int
	HTTPAddr  string     // where the API answers buyers; port 0 takes any free one
	AdminAddr string     // where the API serves operations; port 0 takes any free one
	Environ   []string   // what members inherit, settings included; NAME=value
	Hear      func(Line) // gets every line of every member, from several goroutines; nil: nobody listens
}

// Crew is a running installation.
type Crew struct {
	Servers *localservers.Servers
	API     *Member
	Workers []*Member
	Config  config.Config // for connections of our own

	environ []string
}

// Start starts everything and returns when the API serves and every worker has joined. What was started is stopped again
// when something fails. say is told each step before it begins.
func Start(ctx context.Context, o Options, say func(step string)) (*Crew, error) {
	c := &Crew{}
	if err := c.start(ctx, o, say); err != nil {
		return nil, errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
	}
	return c, nil
}

func (c *Crew) start(ctx context.Context, o Options, say func(string)) error {
	// Before anything is started: what the members would refuse is told at once.
	if _, err := settingsOf(append(slices.Clone(o.Environ), "DATABASE_URL=postgres://later", "REDIS_URL=redis://later")); err != nil {
		return err
	}
	say("servers")
	servers, err := localservers.Start(ctx)
	if err != nil {
		return err
	}
	c.Servers = servers
	c.environ = append(slices.Clone(o.Environ),
		"DATABASE_URL="+servers.Postgres.URL(), "REDIS_URL="+servers.Redis.URL(), "DURABILITY=fsync",
		"AUTH_MODE=dev", "LOG_FORMAT=json")
	if c.Config, err = settingsOf(c.environ); err != nil {
		return err
	}
	say("schema")
	if err := db.Migrate(ctx, servers.Postgres.URL()); err != nil {
		return err
	}
	say("programs")
	if err := c.launch(o); err != nil {
		return err
	}
	return c.await(ctx)
}

func (c *Crew) launch(o Options) error {
	hear := o.Hear
	if hear == nil {
		hear = func(Line) {}
	}
	var err error
	if c.API, err = c.member("api", "api", hear, "HTTP_ADDR="+o.HTTPAddr, "ADMIN_ADDR="+o.AdminAddr); err != nil {
		return err
	}
	for i := range o.Workers {
		// An empty ADMIN_ADDR is any free port, also when ours is set for somebody else.
		worker, err := c.member(fmt.Sprintf("worker-%d", i+1), "worker", hear, "ADMIN_ADDR=")
		if err != nil {
			return err
		}
		c.Workers = append(c.Workers, worker)
	}
	return nil
}

func (c *Crew) member(name, command string, hear func(Line), settings ...string) (*Member, error) {
	return Launch(c.Servers, name, command, append(c.environ[:len(c.environ):len(c.environ)], settings...), hear)
}

func (c *Crew) await(ctx context.Context) error {
	for _, m := range append([]*Member{c.API}, c.Workers...) {
		if err := m.Await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends everything in the order in which orders flow: the API, so that nothing new comes in; the workers, which finish
// what they have; the servers. Members that have ended are fine. When ctx ends first, the rest is killed.
func (c *Crew) Stop(ctx context.Context) error {
	var errs []error
	if c.API != nil {
		errs = append(errs, c.API.Stop(ctx))
	}
	errs = append(errs, stopAll(ctx, c.Workers))
	if c.Servers != nil {
		errs = append(errs, c.Servers.Close())
	}
	return errors.Join(errs...)
}

func stopAll(ctx context.Context, members []*Member) error {
	errs := make([]error, len(members))
	var stopping sync.WaitGroup
	for i, m := range members {
		stopping.Go(func() { errs[i] = m.Stop(ctx) })
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// Stop asks the member to end and waits for it; one that takes too long, or longer than ctx, is killed and the error says so.
func (m *Member) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := m.program.Stop(ctx); err != nil {
		return fmt.Errorf("stop %s: %w", m.Name, err)
	}
	return nil
}

// settingsOf reads the settings in an environment. Its error is KindInvalid and names all that are wrong.
func settingsOf(environ []string) (config.Config, error) {
	cfg, err := config.Load(config.CLI, nil, lookup(environ), io.Discard)
	if err != nil {
		return cfg, pipeline.Errorf(pipeline.KindInvalid, "these settings are wrong: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
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
