package localservers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// copyLimit bounds the copy of a primary's data, which takes about a second.
const copyLimit = 60 * time.Second

// standbys are those of a Postgres.
type standbys struct {
	mu  sync.Mutex // protects the rest
	all []*Postgres
}

// StartStandby starts another Postgres with this one's data, which follows it by streaming replication, and returns
// once it answers. Config lines are as for StartPostgres. It lives in the same sandbox and ends with this server; Close
// ends it sooner. Commits do not wait for it before AwaitStandby.
func (p *Postgres) StartStandby(ctx context.Context, config ...string) (*Postgres, error) {
	standby, err := p.startStandby(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("standby: %w", err)
	}
	p.standbys.mu.Lock()
	defer p.standbys.mu.Unlock()
	p.standbys.all = append(p.standbys.all, standby)
	return standby, nil
}

func (p *Postgres) startStandby(ctx context.Context, config []string) (*Postgres, error) {
	bin, err := findPostgres()
	if err != nil {
		return nil, err
	}
	s := &Postgres{}
	if err := s.prepare(p.sandbox, p.sandbox.uniqueName("standby")); err != nil {
		return nil, err
	}
	data := filepath.Join(s.dir, clusterDir)
	s.spec.argv = []string{filepath.Join(bin, "postgres"), "-D", data}
	s.stop, s.probe = syscall.SIGINT, s.ping
	if err := s.copyOf(ctx, p, filepath.Join(bin, "pg_basebackup"), data); err != nil {
		return nil, err
	}
	if err := appendTo(filepath.Join(data, "postgresql.conf"), postgresConfig(s.dir, config)); err != nil {
		return nil, err
	}
	return s, s.start(ctx)
}

// copyOf copies the primary's data, with what is needed to follow it from there.
func (p *Postgres) copyOf(ctx context.Context, primary *Postgres, basebackup, data string) error {
	ctx, cancel := context.WithTimeout(ctx, copyLimit)
	defer cancel()
	log, err := os.Create(filepath.Join(p.dir, "copy.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	backup := p.spec
	backup.name, backup.stdout, backup.stderr = "pg_basebackup", log, log
	backup.argv = []string{
		basebackup, "-D", data, "--write-recovery-conf", "--checkpoint=fast", "--no-sync",
		"-d", fmt.Sprintf("host=%s port=%s user=sluice", primary.dir, postgresPort),
	}
	proc, err := p.sandbox.start(backup)
	if err != nil {
		return err
	}
	if err := proc.result(ctx); err != nil {
		return fmt.Errorf("pg_basebackup: %w; its output ends:\n%s", err, tail(log.Name()))
	}
	return nil
}

// AwaitStandby has every commit from now on wait until a standby has it on its disk (synchronous_standby_names = '*').
// It stays so over restarts.
func (p *Postgres) AwaitStandby(ctx context.Context) error {
	return p.command(ctx, "alter system set synchronous_standby_names = '*'", "select pg_reload_conf()")
}

// Promote makes a standby a primary, with the data that it has by now, and returns once it takes writes.
func (p *Postgres) Promote(ctx context.Context) error {
	return p.command(ctx, fmt.Sprintf("select pg_promote(true, %d)", int(startLimit.Seconds())))
}

// command runs statements as the superuser, one after the other.
func (p *Postgres) command(ctx context.Context, statements ...string) error {
	return p.commandIn(ctx, "postgres", statements...)
}

// commandIn is command in a database.
func (p *Postgres) commandIn(ctx context.Context, database string, statements ...string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.urlOf(database))
	if err != nil {
		return err
	}
	for _, statement := range statements {
		if _, failed := conn.Exec(ctx, statement); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", statement, failed))
		}
	}
	return errors.Join(err, conn.Close(ctx))
}

func (p *Postgres) closeStandbys() error {
	p.standbys.mu.Lock()
	defer p.standbys.mu.Unlock()
	var errs []error
	for _, standby := range p.standbys.all {
		errs = append(errs, standby.Close())
	}
	return errors.Join(errs...)
}
