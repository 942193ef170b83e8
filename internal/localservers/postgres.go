package localservers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// initLimit bounds initdb, which takes about a second.
const initLimit = 60 * time.Second

// postgresPort only names the socket file; nothing listens on the network.
const postgresPort = "5432"

// Postgres is a private Postgres server with the database and the superuser `sluice`. Its methods may be called from
// any goroutine.
type Postgres struct {
	server
	standbys standbys
}

// StartPostgres starts a private Postgres and returns once it answers. Config lines (postgresql.conf syntax) are
// appended to our own: a later line wins. ctx bounds the start only; Close ends the server. ErrNoBinary is in the chain
// of the error when Postgres is not installed.
func StartPostgres(ctx context.Context, config ...string) (*Postgres, error) {
	return startPostgresAlone(ctx, settings{config: config})
}

func startPostgresAlone(ctx context.Context, how settings) (p *Postgres, err error) {
	return p, startAlone(func(s *sandbox) (*server, error) {
		if p, err = startPostgresIn(ctx, s, how); err != nil {
			return nil, fmt.Errorf("private Postgres: %w", err)
		}
		return &p.server, nil
	})
}

func startPostgresIn(ctx context.Context, s *sandbox, how settings) (*Postgres, error) {
	return startPostgresAs(ctx, s, "postgres", how)
}

// startPostgresAs starts a server under a name that no other one of the sandbox has.
func startPostgresAs(ctx context.Context, s *sandbox, name string, how settings) (*Postgres, error) {
	bin, err := findPostgres()
	if err != nil {
		return nil, err
	}
	p := &Postgres{}
	if err := p.prepare(s, name); err != nil {
		return nil, err
	}
	data := filepath.Join(p.dir, clusterDir)
	p.spec.argv = []string{filepath.Join(bin, "postgres"), "-D", data}
	p.stop = syscall.SIGINT // "fast": ends the sessions, then writes a checkpoint
	p.probe = p.ping
	if err := p.initdb(ctx, filepath.Join(bin, "initdb"), data, how.config); err != nil {
		return nil, err
	}
	if how.clock {
		if err := p.giveClock(ctx); err != nil {
			return nil, err
		}
	}
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	return p, p.createDatabase(ctx)
}

// initdb does not sync what it writes: after a loss of power the directory is of no use anyway. The server itself does
// sync.
func (p *Postgres) initdb(ctx context.Context, initdb, data string, config []string) error {
	ctx, cancel := context.WithTimeout(ctx, initLimit)
	defer cancel()
	log, err := os.Create(filepath.Join(p.dir, "initdb.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	init := p.spec
	init.name, init.stdout, init.stderr = "initdb", log, log
	init.argv = []string{
		initdb, "-D", data, "--username=sluice", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync",
	}
	proc, err := p.sandbox.start(init)
	if err != nil {
		return err
	}
	if err := proc.result(ctx); err != nil {
		return fmt.Errorf("initdb: %w; its output ends:\n%s", err, tail(log.Name()))
	}
	return appendTo(filepath.Join(data, "postgresql.conf"), postgresConfig(p.dir, config))
}

func postgresConfig(dir string, config []string) string {
	lines := []string{
		"listen_addresses = ''",
		"unix_socket_directories = '" + dir + "'",
		"unix_socket_permissions = 0700",
		"port = " + postgresPort,
		"max_connections = 200",
		"shared_buffers = 64MB",              // several servers run side by side on a small machine
		"dynamic_shared_memory_type = mmap",  // in the data directory: nothing is left in /dev/shm after a SIGKILL
		"fsync = on",                         // as durable as production
		"synchronous_commit = on",            //
		"timezone = 'UTC'",                   //
		"log_timezone = 'UTC'",               //
		"log_line_prefix = '%m [%p] %q%d: '", //
	}
	return strings.Join(append(lines, config...), "\n") + "\n"
}

func (p *Postgres) createDatabase(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.urlOf("postgres"))
	if err != nil {
		return errors.Join(err, p.Kill())
	}
	_, err = conn.Exec(ctx, "create database sluice")
	err = errors.Join(err, conn.Close(ctx))
	if err != nil {
		return errors.Join(fmt.Errorf("create database sluice: %w", err), p.Kill())
	}
	return nil
}

func (p *Postgres) ping(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.urlOf("postgres"))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// URL is the address of the database `sluice`, in the form that DATABASE_URL takes. It stays the same over restarts.
func (p *Postgres) URL() string { return p.urlOf("sluice") }

// URLAs is URL for another role, which needs no password.
func (p *Postgres) URLAs(role string) string {
	return "postgres://" + url.PathEscape(role) + strings.TrimPrefix(p.URL(), "postgres://sluice")
}

// urlOf sets what a PGPORT or a PGSSLMODE in the environment would otherwise decide.
func (p *Postgres) urlOf(database string) string {
	query := url.Values{"host": {p.dir}, "port": {postgresPort}, "sslmode": {"disable"}}
	return "postgres://sluice@/" + database + "?" + strings.ReplaceAll(query.Encode(), "%2F", "/")
}

// Close ends the server and removes its data. Calling it twice is harmless.
func (p *Postgres) Close() error { return p.closeAfter(errors.Join(p.closeStandbys(), p.quit())) }

// quit ends the server without a checkpoint: its data is no longer needed.
func (p *Postgres) quit() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end(context.Background(), syscall.SIGQUIT, killLimit)
}
