package main

import (
	"context"
	"fmt"
	"time"

	"sluice/db"
	"sluice/db/distribution"
)

// migrateStartTimeout is how long migrate waits for a Postgres that may just be starting with it, as in a compose
// stack.
const migrateStartTimeout = 30 * time.Second

type migrateCmd struct {
	Distributed bool `help:"Then distribute the tables over the nodes of a Citus cluster, by the sale. DATABASE_URL is that of the coordinator, and there is no way back. Repeating it changes nothing."`

	Grant bool `help:"Then make the roles sluice_api, sluice_worker and sluice_operator and give them their rights (sluice grants), with the passwords in POSTGRES_API_PASSWORD, POSTGRES_WORKER_PASSWORD and POSTGRES_OPERATOR_PASSWORD, or in the files that POSTGRES_API_PASSWORD_FILE and so on name."`
}

// Run migrates. It needs no Redis, so it does not ask for one to be set.
func (c *migrateCmd) Run(a *app) error {
	passwords, err := c.passwords() // before anything is changed
	if err != nil {
		return err
	}
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
	distributed := ""
	if c.Distributed {
		done, err := distribution.Apply(a.ctx, cfg.DatabaseURL)
		if err != nil {
			return err
		}
		distributed = fmt.Sprintf(" Citus %s: %d tables were distributed by the sale, and %d copied to every node.",
			done.Citus, done.Distributed, done.Everywhere)
	}
	granted := ""
	if c.Grant {
		granted = " The roles have their rights."
		if err := db.Grant(a.ctx, cfg.DatabaseURL, db.Roles{
			API: "sluice_api", Worker: "sluice_worker", Operator: "sluice_operator", Passwords: passwords,
		}); err != nil {
			return err
		}
	}
	versions := struct {
		Before int64 `json:"before"`
		After  int64 `json:"after"`
	}{before, after}
	if before == after {
		return a.answer(versions, "The database has schema version %d already.%s%s", after, distributed, granted)
	}
	return a.answer(versions, "The database went from schema version %d to %d.%s%s", before, after, distributed, granted)
}

// passwords are those of the roles. One that is not set stays as it is.
func (c *migrateCmd) passwords() ([3]string, error) {
	if !c.Grant {
		return [3]string{}, nil
	}
	return passwordsOf("POSTGRES")
}
