package localservers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

const (
	// citusWorkers hold the shards. Two are the least on which a statement can concern more than one node.
	citusWorkers = 2
	// citusShards is how many shards each table has, unless a line of configuration says otherwise: one on each worker.
	// More would be many files in each test's database.
	citusShards = 2
	// dropTries bounds how often a database is dropped to which Citus connects again: each takes some tenths of a second.
	dropTries = 10
	// citusMissing is what Postgres logs before it exits because the extension is not installed.
	citusMissing = `could not access file "citus"`
)

// Citus is a private Postgres that Citus distributes over three nodes: a coordinator, which programs connect to, and
// two workers, which have the shards. Its methods may be called from any goroutine.
type Citus struct {
	sandbox *sandbox
	alone   bool        // in the sandbox
	nodes   []*Postgres // the coordinator first
}

// HasCitus reports whether the extension is installed for the Postgres that StartCitus would run.
func HasCitus() bool {
	bin, err := findPostgres()
	if err != nil {
		return false
	}
	libraries := filepath.Join(bin, "..", "lib") // as Debian has it, also where pg_config is not installed
	if output, err := exec.Command(filepath.Join(bin, "pg_config"), "--pkglibdir").Output(); err == nil {
		libraries = strings.TrimSpace(string(output))
	}
	_, err = os.Stat(filepath.Join(libraries, "citus.so"))
	return err == nil
}

// StartCitus starts the nodes and returns once each knows the others, with the database `sluice` and the extension on
// all of them. Config lines are as for StartPostgres. ctx bounds the start only; Close ends the nodes. ErrNoBinary is
// in the chain of the error when Postgres or the extension is not installed.
func StartCitus(ctx context.Context, config ...string) (*Citus, error) {
	s, err := openSandbox()
	if err != nil {
		return nil, err
	}
	c, err := startCitusIn(ctx, s, settings{config: config})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	c.alone = true
	return c, nil
}

// startCitusIn leaves the sandbox open, also after an error.
func startCitusIn(ctx context.Context, s *sandbox, how settings) (*Citus, error) {
	c := &Citus{sandbox: s, nodes: make([]*Postgres, 1+citusWorkers)}
	if err := c.start(ctx, how); err != nil {
		return nil, errors.Join(fmt.Errorf("private Citus: %w", err), c.Close())
	}
	return c, nil
}

func (c *Citus) start(ctx context.Context, how settings) error {
	lines := []string{
		"shared_preload_libraries = 'citus'",
		"citus.node_conninfo = 'sslmode=disable'",
		"citus.enable_unsafe_triggers = on", // the triggers of a shard write into shards beside it
		fmt.Sprintf("citus.shard_count = %d", citusShards),
		"citus.max_cached_conns_per_worker = 1",
		"citus.recover_2pc_interval = 2s", // what a killed node has prepared is ended soon
	}
	how.config = append(lines, how.config...)
	starts, starting := errgroup.WithContext(ctx)
	for i := range c.nodes {
		starts.Go(func() (err error) {
			c.nodes[i], err = startPostgresAs(starting, c.sandbox, c.sandbox.uniqueName("node"), how)
			if err != nil && strings.Contains(err.Error(), citusMissing) {
				err = fmt.Errorf("citus, for a distributed Postgres, is %w", ErrNoBinary)
			}
			if err != nil {
				return err
			}
			// A node also connects to itself, and not to localhost, where nothing listens.
			return c.nodes[i].command(starting,
				"alter system set citus.local_hostname = '"+c.nodes[i].dir+"'", "select pg_reload_conf()")
		})
	}
	if err := starts.Wait(); err != nil {
		return err
	}
	return c.join(ctx, "sluice")
}

// Coordinator is the node that programs connect to.
func (c *Citus) Coordinator() *Postgres { return c.nodes[0] }

// Workers are the nodes that have the shards.
func (c *Citus) Workers() []*Postgres { return c.nodes[1:] }

// URL is that of the coordinator.
func (c *Citus) URL() string { return c.Coordinator().URL() }

// Close ends the nodes and removes their data. Calling it twice is harmless.
func (c *Citus) Close() error {
	var errs []error
	for _, node := range c.nodes {
		if node != nil {
			errs = append(errs, node.Close())
		}
	}
	if c.alone {
		errs = append(errs, c.sandbox.close())
	}
	return errors.Join(errs...)
}

// WorkerOf is the worker that has the rows of a key in a table of the database `sluice`.
func (c *Citus) WorkerOf(ctx context.Context, table, key string) (*Postgres, error) {
	conn, err := pgx.Connect(ctx, c.URL())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }() // it was only read
	var name string
	err = conn.QueryRow(ctx, `
		select nodename from citus_shards where shardid = get_shard_id_for_distribution_column($1::text::regclass, $2::text)`,
		table, key).Scan(&name)
	for _, worker := range c.Workers() {
		if err == nil && worker.dir == name {
			return worker, nil
		}
	}
	return nil, errors.Join(err, fmt.Errorf("no worker has the rows of %q in %s", key, table))
}

// Prepared counts the transactions that nodes have prepared and nobody has ended: what a node that was killed leaves
// behind until Citus' own maintenance ends it, within some seconds.
func (c *Citus) Prepared(ctx context.Context) (count int, err error) {
	for _, node := range c.nodes {
		conn, err := pgx.Connect(ctx, node.URL())
		if err != nil {
			return 0, err
		}
		var n int
		err = conn.QueryRow(ctx, `select count(*) from pg_prepared_xacts`).Scan(&n)
		if err := errors.Join(err, conn.Close(ctx)); err != nil {
			return 0, err
		}
		count += n
	}
	return count, nil
}

// CreateDatabase makes a database on every node, empty or as a copy of another one (template: its name), which must
// have been made in this way and have no sessions.
func (c *Citus) CreateDatabase(ctx context.Context, name, template string) error {
	statement := "create database " + pgx.Identifier{name}.Sanitize()
	if template != "" {
		statement += " template " + pgx.Identifier{template}.Sanitize()
	}
	if err := c.onEach(ctx, "postgres", statement); err != nil || template != "" {
		return err // a copy knows the nodes
	}
	return c.join(ctx, name)
}

// DropDatabase removes a database from every node, with any connections to it. Citus' own may come again at any moment.
func (c *Citus) DropDatabase(ctx context.Context, name string) (err error) {
	for range dropTries {
		err = c.onEach(ctx, "postgres", "drop database if exists "+pgx.Identifier{name}.Sanitize()+" with (force)")
		if err == nil {
			return nil
		}
	}
	return err
}

// Freeze ends all sessions of a database and admits no more, Citus' own ones included, so that it can be copied.
func (c *Citus) Freeze(ctx context.Context, name string) error {
	return c.onEach(ctx, "postgres",
		"alter database "+pgx.Identifier{name}.Sanitize()+" with allow_connections false",
		"select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = '"+name+"'")
}

// join has the nodes of a database know each other.
func (c *Citus) join(ctx context.Context, database string) error {
	if err := c.onEach(ctx, database, "create extension if not exists citus"); err != nil {
		return err
	}
	port, _ := strconv.Atoi(postgresPort)
	statements := []string{fmt.Sprintf("select citus_set_coordinator_host('%s', %d)", c.Coordinator().dir, port)}
	for _, worker := range c.Workers() {
		statements = append(statements, fmt.Sprintf("select citus_add_node('%s', %d)", worker.dir, port))
	}
	return c.Coordinator().commandIn(ctx, database, statements...)
}

// onEach runs statements in a database on all nodes at once.
func (c *Citus) onEach(ctx context.Context, database string, statements ...string) error {
	calls, ctx := errgroup.WithContext(ctx)
	for _, node := range c.nodes {
		calls.Go(func() error { return node.commandIn(ctx, database, statements...) })
	}
	return calls.Wait()
}
