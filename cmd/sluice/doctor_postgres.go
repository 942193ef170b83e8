package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"sluice/db"
	"sluice/internal/process"
	"sluice/pipeline"
	"sluice/pipeline/installation"
)

// oldestPostgres is the oldest major version that still gets fixes when this is written.
const oldestPostgres = 14

// postgres examines Postgres.
func (d *doctor) postgres(ctx context.Context) {
	const check = "Postgres"
	to := postgresServer(d.cfg)
	var pg *postgres
	err := reach(ctx, d.cfg, to, func(ctx context.Context) (err error) {
		pg, err = dialPostgres(ctx, d.cfg.DatabaseURL)
		return err
	})
	if err != nil {
		d.failed(check, err, "start Postgres, or correct DATABASE_URL")
		return
	}
	defer pg.close()
	d.postgresVersion(ctx, pg, to)
	d.postgresDurability(ctx, pg)
	d.roles(ctx, pg)
	d.schema(ctx)
	d.partitions(ctx, pg)
	d.installation(ctx, pg)
	d.endpointSecrets(ctx, pg)
	d.entryTickets(ctx, pg)
	d.clock("Postgres clock", func() (time.Time, error) { return pg.clock(ctx) })
}

func (d *doctor) postgresVersion(ctx context.Context, pg *postgres, to server) {
	const check = "Postgres"
	var version string
	var number int
	var replica bool
	_, err := pg.one(ctx,
		`select current_setting('server_version'), current_setting('server_version_num')::int, pg_is_in_recovery()`,
		&version, &number, &replica)
	switch {
	case err != nil:
		d.failed(check, err, "look at the log of Postgres")
	case replica:
		d.note(false, check, "version "+version+", a read-only replica at "+to.address, "point DATABASE_URL at the primary")
	default:
		d.note(number/10000 >= oldestPostgres, check, "version "+version+" at "+to.address,
			"use Postgres "+strconv.Itoa(oldestPostgres)+" or later")
	}
}

// postgresDurability checks that a commit is on disk: after it the event is deleted from Redis.
func (d *doctor) postgresDurability(ctx context.Context, pg *postgres) {
	const check = "Postgres durability"
	var fsync, fullPages, commit string
	_, err := pg.one(ctx,
		`select current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit')`,
		&fsync, &fullPages, &commit)
	if err != nil {
		d.failed(check, err, "look at the log of Postgres")
		return
	}
	// Our sessions switch synchronous_commit on themselves.
	d.note(fsync == "on" && fullPages == "on", check,
		fmt.Sprintf("fsync %s, full_page_writes %s, synchronous_commit %s (on for orders)", fsync, fullPages, commit),
		"switch fsync and full_page_writes on: without them a crash of the machine loses orders that were persisted")
}

func (d *doctor) schema(ctx context.Context) {
	const check = "schema"
	store, err := db.Open(ctx, d.cfg.DatabaseURL, db.Options{ApplicationName: "sluice-doctor", MaxConns: 1})
	if err != nil {
		d.failed(check, err, "correct DATABASE_URL")
		return
	}
	defer store.Close()
	if err := store.CheckSchema(ctx); err != nil {
		d.failed(check, err, "run: sluice migrate")
		return
	}
	version, err := db.Version(ctx, d.cfg.DatabaseURL)
	if err != nil {
		d.failed(check, err, "look at the log of Postgres")
		return
	}
	d.note(true, check, "version "+strconv.FormatInt(version, 10), "")
}

func (d *doctor) partitions(ctx context.Context, pg *postgres) {
	const check = "partitions"
	installed, err := pg.partitions(ctx)
	switch {
	case err != nil:
		d.failed(check, err, "run: sluice migrate")
	case installed == 0:
		d.note(true, check, "not fixed yet; the first start will fix "+strconv.Itoa(d.cfg.Partitions), "")
	default:
		d.note(installed == d.cfg.Partitions, check,
			fmt.Sprintf("installed with %d, PARTITIONS is %d", installed, d.cfg.Partitions),
			"set PARTITIONS="+strconv.Itoa(installed)+" for every program: keys are found by it")
	}
}

// installation shows the id of the database's installation, and whether Redis belongs to it.
func (d *doctor) installation(ctx context.Context, pg *postgres) {
	const check = "installation"
	var id string
	found, err := pg.one(ctx, `select id::text from installation_id`, &id)
	switch {
	case err != nil:
		d.failed(check, err, "look at the log of Postgres")
		return
	case !found: // the check of the schema says what to do
		return
	}
	rdb, err := process.OpenRedis(d.cfg)
	if err != nil {
		return // the check of Redis says so
	}
	defer func() { _ = rdb.Close() }() // nothing is lost
	err = installation.Check(ctx, rdb, pipeline.DefaultKeys, d.cfg.Partitions, id)
	switch {
	case installation.IsForeign(err):
		d.failed(check, err, "set REDIS_URL and DATABASE_URL to a pair; FLUSHALL frees a Redis whose data is not needed")
	case err != nil:
		d.note(true, check, id+"; Redis did not say whether it belongs to it", "")
	default:
		d.note(true, check, id+", and Redis belongs to it or is unused", "")
	}
}
