// Package distribution spreads the tables of a migrated database over the nodes of a Citus cluster
// (docs/decisions/0045-distributed-postgres.md). The statements of package db are the same on both kinds of database.
//
// Read plan.go for what becomes of each table, then this file for how.
package distribution

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

const (
	// limit bounds a whole run where the caller set no deadline. An empty database takes some seconds.
	limit = 10 * time.Minute
	// maxBytes is how much a database may hold before it is distributed, with indexes: its tables are locked while their
	// rows are copied, for about a minute for each of these.
	maxBytes = 1 << 30
)

// Report is what a run has done.
type Report struct {
	Citus       string // version of the extension
	Distributed int    // tables that this run has distributed by the sale
	Everywhere  int    // tables that this run has copied to every node
}

// Apply distributes what is not distributed yet: the tables of a sale by the sale, side by side. The url is that of the
// coordinator, for the owner of the tables. A run that was broken off is gone on with by the next one, and repeating it
// changes nothing. Sluice must not run meanwhile: keys are replaced. Errors: KindInvalid, where the server has no
// Citus, knows no workers, or holds more than can be copied at once; KindUnavailable.
func Apply(ctx context.Context, url string) (Report, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return Report{}, pipeline.Errorf(pipeline.KindInvalid, "the URL of the database can't be read")
	}
	// A table may rightly be copied for minutes. Citus tells much that is no news here.
	config.RuntimeParams["statement_timeout"] = "0"
	config.RuntimeParams["client_min_messages"] = "warning"
	config.RuntimeParams["application_name"] = "sluice-migrate"
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return Report{}, unavailable(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // everything was committed, or reported
	r := run{conn: conn}
	if err := r.all(ctx); err != nil {
		return r.report, unavailable(err)
	}
	return r.report, nil
}

func unavailable(err error) error {
	if err == nil || pipeline.KindOf(err) != "" {
		return err
	}
	return pipeline.Wrap(pipeline.KindUnavailable, err, "distribute the tables")
}

type run struct {
	conn   *pgx.Conn
	report Report
}

func (r *run) all(ctx context.Context) error {
	if err := r.check(ctx); err != nil {
		return err
	}
	// Two runs at once pass one by one. Citus' own settings: the triggers of a shard touch what is beside it, and shards
	// are made one after the other, because some keys refer to tables that are on every node.
	for _, statement := range []string{
		`select pg_advisory_lock(hashtextextended('sluice:distribution', 0))`,
		`set citus.enable_unsafe_triggers = on`,
		`set citus.multi_shard_modify_mode = 'sequential'`,
	} {
		if _, err := r.conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	for _, part := range []struct {
		tables []table
		hand   func(context.Context, table) (bool, error)
		count  *int
	}{{everywhere, r.copyEverywhere, &r.report.Everywhere}, {bySale, r.distribute, &r.report.Distributed}} {
		for _, t := range part.tables {
			did, err := part.hand(ctx, t)
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			if did {
				*part.count++
			}
		}
	}
	return r.giveFunctions(ctx)
}

// check refuses what can't be distributed, before anything is changed.
func (r *run) check(ctx context.Context) error {
	err := r.conn.QueryRow(ctx, `select extversion from pg_extension where extname = 'citus'`).Scan(&r.report.Citus)
	if errors.Is(err, pgx.ErrNoRows) {
		return pipeline.Errorf(pipeline.KindInvalid, "this database has no Citus: install the extension on every node, "+
			"put it into shared_preload_libraries, run `create extension citus` in the database of each, and add the nodes on "+
			"the coordinator (citus_set_coordinator_host, citus_add_node)")
	}
	if err != nil {
		return err
	}
	var workers int
	var bytes int64
	const query = `
		select (select count(*) from pg_dist_node where isactive and shouldhaveshards),
			coalesce((select sum(pg_total_relation_size(name::regclass)) from unnest($1::text[]) as t (name)
				where to_regclass(name) is not null
				and not exists (select from pg_dist_partition p where p.logicalrelid = to_regclass(t.name))), 0)::bigint`
	var names []string
	for _, t := range slices.Concat(everywhere, bySale) {
		names = append(names, t.name)
	}
	if err := r.conn.QueryRow(ctx, query, names).Scan(&workers, &bytes); err != nil {
		return err
	}
	switch {
	case workers == 0:
		return pipeline.Errorf(pipeline.KindInvalid,
			"this node knows no workers: connect to the coordinator, and add them there (citus_add_node)")
	case bytes > maxBytes:
		return pipeline.Errorf(pipeline.KindInvalid, "the tables hold %d MB, and at most %d MB can be distributed at once, "+
			"because everything waits until they are copied: begin with an empty database, or drop old sales before",
			bytes>>20, maxBytes>>20)
	}
	return nil
}

// isDone reports whether Citus manages a table already.
func (r *run) isDone(ctx context.Context, table string) (done bool, err error) {
	err = r.conn.QueryRow(ctx, `
		select exists (select from pg_dist_partition where logicalrelid = $1::text::regclass and not autoconverted)`,
		table).Scan(&done)
	return done, err
}

func (r *run) copyEverywhere(ctx context.Context, t table) (bool, error) {
	return r.once(ctx, t, `select create_reference_table('`+t.name+`')`)
}

func (r *run) distribute(ctx context.Context, t table) (bool, error) {
	beside := "sales"
	if t.name == beside {
		beside = "none"
	}
	return r.once(ctx, t,
		`select create_distributed_table('`+t.name+`', '`+t.sale()+`', colocate_with := '`+beside+`')`)
}

// once replaces the keys of a table and hands it to Citus, at once, unless that is done. It reports whether it did.
func (r *run) once(ctx context.Context, t table, handOver string) (bool, error) {
	done, err := r.isDone(ctx, t.name)
	if err != nil || done {
		return false, err
	}
	if err := r.together(ctx, append(slices.Clone(t.keys), handOver)...); err != nil {
		return false, err
	}
	return true, r.forgetLocal(ctx, t.name)
}

// forgetLocal frees the space of the rows that were copied. They are not visible any more.
func (r *run) forgetLocal(ctx context.Context, table string) error {
	_, err := r.conn.Exec(ctx, `select truncate_local_data_after_distributing_table($1::text::regclass)`, table)
	return err
}

// giveFunctions makes the functions that triggers call on every node, those first that others call. Once a function is
// there, a migration that replaces it replaces it everywhere.
func (r *run) giveFunctions(ctx context.Context) error {
	for _, function := range functions {
		if _, err := r.conn.Exec(ctx, `select create_distributed_function($1::text::regprocedure)`, function); err != nil {
			return fmt.Errorf("%s: %w", function, err)
		}
	}
	return nil
}

func (r *run) together(ctx context.Context, statements ...string) error {
	return pgx.BeginFunc(ctx, r.conn, func(tx pgx.Tx) error {
		for _, statement := range statements {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
}
