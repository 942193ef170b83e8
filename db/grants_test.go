package db_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"sluice/db"
	"sluice/internal/testkit"
	"sluice/pipeline"
)

var testRoles = db.Roles{API: "sluice_test_api", Worker: "sluice_test_worker", Operator: "sluice_test_cli"}

// programs are the three roles of a database of the tests.
func programs(url string) map[string]string {
	return map[string]string{
		"api": testkit.AsAPI(url), "worker": testkit.AsWorker(url), "operator": testkit.AsOperator(url),
	}
}

// Nothing that changes the schema, and nothing that a program has no business with.
func TestRolesAreRefused(t *testing.T) {
	f := setup(t)
	f.exec(`insert into audit_log (actor, action) values ('ann', 'pause'), ('worker', 'rebuild')`)
	everybody := []string{
		`drop table orders`, `truncate orders`, `alter table orders add column x int`, `create table x (id int)`,
		`create index on orders (user_id)`, `alter table orders disable trigger all`, `drop function event_data(orders)`,
		`create or replace function event_time(at timestamptz) returns text language sql as 'select 1::text'`,
		`update goose_db_version set is_applied = false`, `update installation_id set id = gen_random_uuid()`,
		`update stream_key set secret = default`, `delete from sales`,
		`update orders set quantity = 1`, `update orders set sale_id = 'x'`, `update payments set amount = 1`,
		`update operator_tokens set role = 'admin'`, `delete from operator_tokens`, `set session_replication_role = replica`,
		`update sales set id = 'x'`, `delete from watermarks`, `update endpoints set url = 'https://example.com'`,
	}
	insertToken := `insert into operator_tokens (id, name, role, hash, created_by, expires_at)
		values ('aaaaaaaaaaaaaaaa', 'eve', 'admin', sha256('x'), 'eve', now() + interval '1 day')`
	refused := map[string][]string{
		"api": {
			`delete from orders`, `delete from payments`, `delete from audit_log`, `delete from outbox`, `delete from waitlist`,
			`update audit_log set actor = 'x'`, `update audit_log set detail = '{}' where action = 'pause'`,
			`update orders set user_id = 'x'`, `update operator_tokens set revoked_at = now()`, insertToken,
			`insert into dropped_orders default values`, `update outbox set data = '{}'`, `select nextval('outbox_positions')`,
		},
		"worker": {
			`select from operator_tokens`, insertToken, `select from stream_key`, `insert into sales default values`,
			`insert into endpoints default values`, `update endpoints set secret = 'x'`,
			`delete from accept_journals`, `insert into operator_requests default values`,
		},
		"operator": {
			`delete from orders`, `delete from payments`, `delete from audit_log`, `update orders set user_id = 'x'`,
			`update audit_log set at = now() where action = 'pause'`,
			`select from stream_key`, `delete from operator_tokens`, `insert into waitlist default values`,
		},
	}
	for program, url := range programs(f.url) {
		conn, err := pgx.Connect(f.ctx(), url)
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range append(everybody, refused[program]...) {
			_, err := conn.Exec(f.ctx(), statement)
			var pgErr *pgconn.PgError
			if !errors.As(err, &pgErr) || pgErr.Code != "42501" {
				t.Errorf("%s, %s: got %v, want 42501", program, statement, err)
			}
		}
		// each rebuilds, and writes its line again
		if _, err := conn.Exec(f.ctx(), `update audit_log set actor = 'x' where action = 'rebuild'`); err != nil {
			t.Errorf("%s: %v", program, err)
		}
		if err := conn.Close(f.ctx()); err != nil {
			t.Error(err)
		}
	}
}

// A migration that makes a table says in grants which program needs it. Of what is named there, everything exists,
// and nothing else is anybody's: what PUBLIC has, every role of the server has.
func TestEveryTableHasItsGrants(t *testing.T) {
	f := setup(t)
	script, err := db.GrantsSQL(testRoles)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := f.raw.Query(f.ctx(), `
		select relname from pg_class where relnamespace = 'public'::regnamespace and (relkind in ('r', 'p', 'v', 'm')
			or relkind = 'S' and not exists (select from pg_depend d where d.objid = pg_class.oid and d.deptype = 'i'))`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 30 {
		t.Fatalf("%d tables, %v", len(tables), err)
	}
	for _, table := range tables {
		if !strings.Contains(script, " on "+table+" to ") {
			t.Errorf("no program may do anything with %s: say in grants who needs it", table)
		}
	}
	public := one[int64](f, `
		select count(*) from pg_class c, aclexplode(c.relacl) a
		where c.relnamespace = 'public'::regnamespace and a.grantee = 0`)
	definers := one[int64](f, `select count(*) from pg_proc where pronamespace = 'public'::regnamespace and prosecdef`)
	if public != 0 || definers != 0 {
		t.Errorf("%d rights of PUBLIC, and %d functions that do what their owner may do", public, definers)
	}
}

// What is granted and named in no statement is superfluous: a table that nothing inserts into needs no INSERT.
func TestGrantsAreNamedInStatements(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for _, pattern := range []string{"*.go", "migrations/*.sql", "../cmd/sluice/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") || file == "grant_list.go" {
				continue
			}
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text.Write(source)
		}
	}
	statements := strings.Join(strings.Fields(text.String()), " ")
	script, err := db.GrantsSQL(testRoles)
	if err != nil {
		t.Fatal(err)
	}
	grant := regexp.MustCompile(`(?m)^grant (.*) on (\w+) to "`)
	column := regexp.MustCompile(`update \(([^)]*)\)`)
	for _, match := range grant.FindAllStringSubmatch(script, -1) {
		rights, table := match[1], match[2]
		if table == "schema" {
			continue
		}
		if of, ok := strings.CutSuffix(table, "_id_seq"); ok { // drawn from by an insert, where Citus plans it
			table, rights = of, "insert"
		}
		for right, named := range map[string]string{
			"insert": `insert into ` + table + `\b`, "delete": `delete from (` + table + `\b|` + "`)",
			"update": `update (` + table + `\b|` + "`)|insert into " + table + `\b[^;]*do update|table + `,
			"select": `(from|join|using|returning|,) (only )?` + table + `\b|update ` + table + `\b`,
			"usage":  `nextval\('` + table + `'\)`,
		} {
			if strings.Contains(rights, right) && !regexp.MustCompile(named).MatchString(statements) {
				t.Errorf("%s is granted on %s, and no statement does it", right, table)
			}
		}
		for _, columns := range column.FindAllStringSubmatch(rights, -1) {
			for _, name := range strings.Split(columns[1], ", ") {
				if !regexp.MustCompile(`\b` + name + ` =|"` + name + `"`).MatchString(statements) {
					t.Errorf("update (%s) is granted on %s, and no statement does it", name, table)
				}
			}
		}
	}
}

// Granting again takes away what was granted by hand, and changes nothing else.
func TestGrantingAgain(t *testing.T) {
	f := setup(t)
	const acls = `select string_agg(relname || relacl::text, ' ' order by relname) from pg_class
		where relnamespace = 'public'::regnamespace and relacl is not null`
	const columns = `
		select coalesce(string_agg(attrelid::regclass || attname || attacl::text, ' ' order by attrelid, attnum), '')
		from pg_attribute where attacl is not null`
	before, beforeColumns := one[string](f, acls), one[string](f, columns)
	f.exec(`grant delete on orders to sluice_test_api`)
	f.exec(`grant update (quantity) on orders to sluice_test_api`)
	if one[string](f, acls) == before || one[string](f, columns) == beforeColumns {
		t.Fatal("the test grants nothing")
	}
	for range 2 {
		if err := db.Grant(f.ctx(), f.url, testRoles); err != nil {
			t.Fatal(err)
		}
		if got, gotColumns := one[string](f, acls), one[string](f, columns); got != before || gotColumns != beforeColumns {
			t.Errorf("got  %s %s\nwant %s %s", got, gotColumns, before, beforeColumns)
		}
	}
}

func TestGrantsForStrangeNames(t *testing.T) {
	t.Parallel()
	script, err := db.GrantsSQL(db.Roles{API: `a"; drop table orders; --`, Worker: "w-1", Operator: "O"})
	if err != nil || strings.Contains(script, `"a"; drop`) || !strings.Contains(script, `"a""; drop table orders; --"`) {
		t.Errorf("%v\n%s", err, script)
	}
	for _, r := range []db.Roles{
		{Worker: "w", Operator: "o"},
		{API: "a", Worker: "a", Operator: "o"},
		{API: "a", Worker: "w", Operator: strings.Repeat("o", 64)},
		{API: "a\nb", Worker: "w", Operator: "o"},
	} {
		_, err := db.GrantsSQL(r)
		wantKind(t, err, pipeline.KindInvalid)
	}
}
