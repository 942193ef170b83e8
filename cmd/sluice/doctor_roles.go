package main

import (
	"context"
	"fmt"
	"strings"
)

// rolesQuery asks what the roles of this connection and of the programs that are connected may do that no program
// needs: the list is empty for a role of `sluice grants`.
const rolesQuery = `
with programs as (
	select distinct usename as name from pg_stat_activity
	where datname = current_database() and application_name like 'sluice%' and pid <> pg_backend_pid()
	union select current_user
)
select r.rolname, array_remove(array[
	case when r.rolsuper then 'is a superuser' end,
	case when r.rolcreaterole then 'may make roles' end,
	case when r.rolreplication then 'may replicate' end,
	case when exists (
		select from pg_class c where c.relnamespace = to_regnamespace('public') and pg_has_role(r.oid, c.relowner, 'usage')
	) then 'owns tables' end,
	case when has_schema_privilege(r.oid, 'public', 'create') then 'may make tables' end,
	case when exists (
		select from pg_class c where c.relnamespace = to_regnamespace('public') and c.relkind = 'r'
			and has_table_privilege(r.oid, c.oid, 'truncate')
	) then 'may truncate tables' end
], null)
from pg_roles r join programs p on r.rolname = p.name
order by r.rolname <> current_user, r.rolname
limit 20 -- to name; an installation has three`

// roles notes what the connection's role, and those of the programs that are connected now, could do beyond what they
// need. It is no fault: in development one role is enough, and the owner examines an installation, too.
func (d *doctor) roles(ctx context.Context, pg *postgres) {
	const check = "Postgres roles"
	var name string
	var more []string
	var exact, tooMuch []string
	err := pg.each(ctx, rolesQuery, []any{&name, &more}, func() {
		if len(more) == 0 {
			exact = append(exact, name)
			return
		}
		tooMuch = append(tooMuch, name+" "+strings.Join(more, ", "))
	})
	if err != nil {
		d.failed(check, err, "look at the log of Postgres")
		return
	}
	d.rights(check, exact, tooMuch, "which may change no table", "for roles of their own see sluice grants")
}

// rights notes who may do what they need and who may do more.
func (d *doctor) rights(check string, exact, tooMuch []string, limits, instead string) {
	var found []string
	if len(exact) > 0 {
		found = append(found, strings.Join(exact, ", ")+", "+limits)
	}
	if len(tooMuch) > 0 {
		found = append(found, fmt.Sprintf("%s: more than a program needs; %s", strings.Join(tooMuch, "; "), instead))
	}
	d.note(true, check, strings.Join(found, "; "), "")
}
