package main

import (
	"context"
	"time"

	"sluice/db"
)

// migrateStartTimeout is how long migrate waits for a Postgres that may just be starting with it, as in a compose
// stack.
const migrateStartTimeout = 30 * time.Second

type migrateCmd struct{}

// Run migrates. It needs no Redis, so it does not ask for one to be set.
func (c *migrateCmd) Run(a *app) error {
	cfg, err := a.settings.load(map[string]string{
		"REDIS_URL":     "redis://not-needed",
		"START_TIMEOUT": migrateStartTimeout.String(),
	})
	if err != nil {
		return err
	}
	var before int64
	err = reach(a.ctx, cfg, postgresServer(cfg), func(ctx context.Context) (err error) {
		before, err = db.Version(ctx, cfg.DatabaseURL)
		return err
	})
	if err != nil {
		return err
	}
	if err := db.Migrate(a.ctx, cfg.DatabaseURL); err != nil {
		return err
	}
	after, err := db.Version(a.ctx, cfg.DatabaseURL)
	if err != nil {
		return err
	}
	versions := struct {
		Before int64 `json:"before"`
		After  int64 `json:"after"`
	}{before, after}
	if before == after {
		return a.answer(versions, "The database has schema version %d already.", after)
	}
	return a.answer(versions, "The database went from schema version %d to %d.", before, after)
}
