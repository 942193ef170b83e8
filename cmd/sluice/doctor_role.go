package main

import (
	"context"
	"strings"
)

// roleQuery asks what a role may do that no program needs: the list that it returns is empty for a role of
// `sluice grants`.
const roleQuery = `
select current_user, array_remove(array[
	case when r.rolsuper then 'is a superuser' end,
	case when r.rolcreaterole then 'may make roles' end,
	case when r.rolreplication then 'may replicate' end,
	case when exists (
		select from pg_class c where c.relnamespace = to_regnamespace('public') and pg_has_role(c.relowner, 'usage')
	) then 'owns tables' end,
	case when has_schema_privilege('public', 'create') then 'may make tables' end,
	case when exists (
		select from pg_class c where c.relnamespace = to_regnamespace('public') and c.relkind = 'r'
			and has_table_privilege(c.oid, 'truncate')
	) then 'may truncate tables' end
], null)
from pg_roles r where r.rolname = current_user`

// role notes what the connection's role could do beyond what the command line needs. It is no fault: in development one
// role is enough, and the owner examines an installation, too.
func (d *doctor) role(ctx context.Context, pg *postgres) {
	const check = "Postgres role"
	var name string
	var more []string
	switch found, err := pg.one(ctx, roleQuery, &name, &more); {
	case err != nil:
		d.failed(check, err, "look at the log of Postgres")
	case !found:
		d.note(true, check, "not known", "")
	case len(more) == 0:
		d.note(true, check, name+", which may change no table", "")
	default:
		d.note(true, check, name+" "+strings.Join(more, ", ")+
			": more than a program needs; for roles of their own see sluice grants", "")
	}
}
