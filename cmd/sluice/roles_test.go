package main

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"sluice/db"
	"sluice/internal/testkit"
)

// grantedURLs are the databases on which each program of a test has the role that it has in production.
var grantedURLs sync.Map

// withRoles notes a migrated database of ours as one of them.
func withRoles(databaseURL string) string {
	grantedURLs.Store(databaseURL, true)
	return databaseURL
}

// asInProduction gives a program its role. What migrates is the owner.
func asInProduction(settings, args []string) []string {
	address := setting(settings, "DATABASE_URL")
	if _, ok := grantedURLs.Load(address); !ok || len(args) == 0 || slices.Contains(args, "migrate") {
		return settings
	}
	as := testkit.AsOperator
	switch args[0] {
	case "api":
		as = testkit.AsAPI
	case "worker":
		as = testkit.AsWorker
	}
	return append(slices.Clone(settings), "DATABASE_URL="+as(address))
}

// The doctor notes a role that may do too much, of a program that is connected, too, and does not call it a fault.
func TestDoctorNotesTheRole(t *testing.T) {
	t.Parallel()
	database, redisURL := testkit.Database(t), "REDIS_URL="+testkit.PrivateRedis(t).URL()
	other := testkit.Database(t)
	program, err := db.Open(t.Context(), other, db.Options{})
	must(t, err)
	t.Cleanup(program.Close)
	must(t, program.Ping(t.Context()))
	for address, says := range map[string]string{
		database: "is a superuser, may make roles, may replicate, owns tables, may make tables, may truncate tables: " +
			"more than",
		testkit.AsOperator(database): "sluice_test_cli, which may change no table",
		testkit.AsWorker(database):   "sluice_test_worker, which may change no table",
		testkit.AsOperator(other):    "sluice_test_cli, which may change no table; sluice is a superuser",
	} {
		out := sluice(t, []string{redisURL, "DATABASE_URL=" + address}, "doctor").out
		if !strings.Contains(out, says) || strings.Contains(out, "✗ Postgres roles") {
			t.Errorf("got %q, want it to say %q", out, says)
		}
	}
}

// The script that is printed is what psql runs: the owner's migration, then the roles.
func TestGrantsArePrinted(t *testing.T) {
	t.Parallel()
	out := sluice(t, nil, "grants", "--api", "shop_api", "--worker", "shop_worker", "--operator", "shop_cli").mustFine(t)
	for _, says := range []string{
		`create role "shop_api" login`, `on orders to "shop_worker";`,
		`grant select, insert, update (revoked_at, revoked_by) on operator_tokens to "shop_cli";`,
	} {
		if !strings.Contains(out, says) {
			t.Errorf("got %q, want %q", out, says)
		}
	}
	script := decoded[map[string]string](t, sluice(t, nil, "grants", "--json").mustFine(t))["sql"]
	if !strings.Contains(script, `"sluice_operator"`) {
		t.Errorf("got %q", script)
	}
	sluice(t, nil, "grants", "--api", "a", "--worker", "a").mustRefuse(t, 2, "must be three")
}
