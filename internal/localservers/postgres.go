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

// PostgresOptions are what a caller may want other than the default.
type PostgresOptions struct {
	// Config lines, postgresql.conf syntax, appended to our own: a later line wins.
	Config []string
}

// Postgres is a private Postgres server with the database and the superuser `sluice`. Its methods may be called from any
// goroutine.
type Postgres struct {
	server
}

// StartPostgres starts a private Postgres and returns once it answers. ctx bounds the start only; Close ends the server.
// ErrNoBinary is in the chain of the error when Postgres is not installed.
func StartPostgres(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	den, err := openSandbox()
	if err != nil {
		return nil, err
	}
	p, err := startPostgresIn(ctx, den, o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("private Postgres: %w", err), den.close())
	}
	p.ownsSandbox = true
	return p, nil
}

func startPostgresIn(ctx context.Context, d *sandbox, o PostgresOptions) (*Postgres, error) {
	bin, err := findPostgres()
	if err != nil {
		return nil, err
	}
	who, err := serverAccount()
	if err != nil {
		return nil, err
	}
	room, err := d.serverDir("postgres", who)
	if err != nil {
		return nil, err
	}
	p := &Postgres{}
	data := filepath.Join(room, "data")
	p.server = server{
		sandbox:  d,
		dir: room,
		log:  filepath.Join(room, "postgres.log"),
		spec: command{
			name: "postgres", argv: []string{filepath.Join(bin, "postgres"), "-D", data},
			dir: room, env: serverEnv(room), account: who,
		},
		stop:  syscall.SIGINT, // "fast": ends the sessions, then writes a checkpoint
		probe: p.ping,
	}
	if err := p.initdb(ctx, filepath.Join(bin, "initdb"), data, o); err != nil {
		return nil, err
	}
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	return p, p.createDatabase(ctx)
}

// initdb doesn't sync what it writes: a machine that loses power now has no use for the directory. The server itself does
// sync.
func (p *Postgres) initdb(ctx context.Context, initdb, data string, o PostgresOptions) error {
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
	return appendTo(filepath.Join(data, "postgresql.conf"), postgresConfig(p.dir, o))
}

func postgresConfig(room string, o PostgresOptions) string {
	lines := []string{
		"listen_addresses = ''",
		"unix_socket_directories = '" + room + "'",
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
	return strings.Join(append(lines, o.Config...), "\n") + "\n"
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

// urlOf spells out what a PGPORT or a PGSSLMODE in the environment would else decide.
func (p *Postgres) urlOf(database string) string {
	query := url.Values{"host": {p.dir}, "port": {postgresPort}, "sslmode": {"disable"}}
	return "postgres://sluice@/" + database + "?" + strings.ReplaceAll(query.Encode(), "%2F", "/")
}

// Close ends the server and removes its data. Calling it twice is harmless.
func (p *Postgres) Close() error {
	err := p.quit()
	if !p.ownsSandbox {
		return err
	}
	return errors.Join(err, p.sandbox.close())
}

// quit ends the server without a checkpoint: its data is of no use to anybody any more.
func (p *Postgres) quit() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end(context.Background(), syscall.SIGQUIT, killLimit)
}
