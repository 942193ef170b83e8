package db

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

// Roles are the names of the Postgres roles of the three programs. None of them owns anything: the tables belong to the
// role that runs Migrate, which alone may change them.
type Roles struct {
	API, Worker, Operator string

	// Passwords of the three, in that order: printable ASCII without spaces, maxPasswordBytes at most. An empty one
	// leaves the role the password that it has, which is none at first.
	Passwords [3]string
}

// maxRoleBytes is the length of a name in Postgres, which cuts off what is longer.
const maxRoleBytes = 63

func (r Roles) validate() error {
	for _, name := range []string{r.API, r.Worker, r.Operator} {
		if name == "" || len(name) > maxRoleBytes || strings.ContainsFunc(name, func(c rune) bool { return c < ' ' }) {
			return pipeline.Errorf(pipeline.KindInvalid, "role %q: a name has 1 to %d bytes without control characters", name,
				maxRoleBytes)
		}
	}
	if r.API == r.Worker || r.API == r.Operator || r.Worker == r.Operator {
		return pipeline.Errorf(pipeline.KindInvalid, "the roles %q, %q and %q must be three: each has rights of its own",
			r.API, r.Worker, r.Operator)
	}
	return validPasswords(r.Passwords)
}

// Grant runs the script of GrantsSQL, as the owner of the tables.
func Grant(ctx context.Context, url string, r Roles) error {
	script, err := GrantsSQL(r)
	if err != nil {
		return err
	}
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	conn, err := openDirect(url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it was committed, or reported
	_, err = conn.ExecContext(ctx, script)
	return wrap(err, "grant")
}

// GrantsSQL is the script that gives each role what its program needs, and takes from it what it had beyond that. It
// makes roles that do not exist. The owner of the tables runs it, after every migration: running it again changes
// nothing. No password is in it, but what Postgres would store of one (SCRAM). Errors: KindInvalid, for names and
// passwords that can't be used.
func GrantsSQL(r Roles) (string, error) {
	if err := r.validate(); err != nil {
		return "", err
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("begin;")
	line("-- Before Postgres 15 everybody may make tables here.")
	line("revoke create on schema public from public;")
	for i, name := range []string{r.API, r.Worker, r.Operator} {
		role := pgx.Identifier{name}.Sanitize()
		line("")
		line("-- %s", []string{"The api.", "The workers.", "The command line."}[i])
		line("do $$ begin create role %s login; exception when duplicate_object or unique_violation then null; end $$;", role)
		if r.Passwords[i] != "" {
			line("alter role %s password '%s';", role, scramVerifier(r.Passwords[i]))
		}
		line("revoke all on schema public from %s;", role)
		line("revoke all on all tables in schema public from %s;", role)
		line("revoke all on all sequences in schema public from %s;", role)
		line("grant usage on schema public to %s;", role)
		for _, g := range grants {
			rights := []string{g.api, g.worker, g.operator}[i]
			if rights != "" {
				line("grant %s on %s to %s;", strings.Join(strings.Fields(rights), " "), g.on, role)
			}
		}
	}
	line("commit;")
	return b.String(), nil
}
