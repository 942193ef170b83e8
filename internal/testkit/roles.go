package testkit

import (
	"context"
	"net/url"

	"sluice/db"
)

// roles are those of the tests' databases. Their names are of no installation: the server may be one that others use.
var roles = db.Roles{API: "sluice_test_api", Worker: "sluice_test_worker", Operator: "sluice_test_cli"}

// migrateAndGrant makes a database in which each program has the rights that it has in production.
func migrateAndGrant(ctx context.Context, address string) error {
	if err := db.Migrate(ctx, address); err != nil {
		return err
	}
	return db.Grant(ctx, address, roles)
}

// AsAPI is the address of one of our migrated databases, for a session that may do no more than an api.
func AsAPI(address string) string { return as(roles.API, address) }

// AsWorker is AsAPI for a worker.
func AsWorker(address string) string { return as(roles.Worker, address) }

// AsOperator is AsAPI for the command line.
func AsOperator(address string) string { return as(roles.Operator, address) }

// as has the session take a role at its start, which needs no password, and leaves the user as it is.
func as(role, address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		panic(err) // an address of ours
	}
	query := parsed.Query()
	query.Set("role", role)
	parsed.RawQuery = query.Encode()
	return parsed.String()
}
