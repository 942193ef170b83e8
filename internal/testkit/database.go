package testkit

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// template is the migrated database that every test's database is a copy of.
var template struct {
	mu       sync.Mutex // protects the rest
	asked    bool
	adminURL string
	name     string
	err      error
}

// Database returns the URL of a fresh, migrated database on the process' shared Postgres. It is dropped when the test
// ends, with any connections to it.
//
// With TEST_POSTGRES=citus it is a database that Citus distributes over three nodes.
func Database(t testing.TB) string {
	t.Helper()
	address := copyTemplate(t)
	// A copy that runs beside the original is an installation of its own.
	if err := execute(address, "update installation_id set id = gen_random_uuid()"); err != nil {
		t.Fatalf("the test's installation: %v", err)
	}
	return address
}

func copyTemplate(t testing.TB) string {
	t.Helper()
	if onCitus() {
		return citusDatabase(t)
	}
	admin := sharedPostgres.url(t)
	from, err := migratedTemplate(admin)
	if err != nil {
		t.Fatalf("template database: %v", err)
	}
	return createFor(t, admin, " template "+from)
}

// EmptyDatabase is Database without any migration, for the tests of migrations.
func EmptyDatabase(t testing.TB) string {
	t.Helper()
	return createFor(t, sharedPostgres.url(t), "")
}

func createFor(t testing.TB, admin, options string) string {
	t.Helper()
	name := "sluice_test_" + unique()
	if err := execute(admin, "create database "+name+options); err != nil {
		t.Fatalf("create the test's database: %v", err)
	}
	t.Cleanup(func() {
		if err := dropDatabase(admin, name); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	address, err := withDatabase(admin, name)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// migratedTemplate makes the template when it is first needed and returns its name.
func migratedTemplate(admin string) (string, error) {
	template.mu.Lock()
	defer template.mu.Unlock()
	if template.asked {
		return template.name, template.err
	}
	template.asked, template.adminURL = true, admin
	template.name = "sluice_template_" + unique()
	template.err = makeTemplate(admin, template.name)
	return template.name, template.err
}

func makeTemplate(admin, name string) error {
	if err := execute(admin, "create database "+name); err != nil {
		return err
	}
	address, err := withDatabase(admin, name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	return migrateAndGrant(ctx, address)
}

// dropTemplate leaves nothing behind on a server that is not ours.
func dropTemplate() error {
	template.mu.Lock()
	defer template.mu.Unlock()
	if !template.asked {
		return nil
	}
	template.asked = false
	return dropDatabase(template.adminURL, template.name)
}

func dropDatabase(admin, name string) error {
	return execute(admin, "drop database if exists "+name+" with (force)")
}

// execute opens a connection for each statement: CREATE and DROP DATABASE run outside transactions, and tests are few
// enough.
func execute(admin, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

// withDatabase replaces the database in an address of the form postgres://user@host/database?options.
func withDatabase(address, name string) (string, error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme == "" {
		return "", fmt.Errorf("TEST_DATABASE_URL must have the form postgres://user@host/database")
	}
	parsed.Path = "/" + name
	return parsed.String(), nil
}
