package main

import (
	"context"
	"strconv"
)

// entryTickets checks that there are keys for the sales that need entry tickets. It sees the settings of this command,
// which are to be those of the apis.
func (d *doctor) entryTickets(ctx context.Context, pg *postgres) {
	const check = "entry tickets"
	var sales int
	var one string
	found, err := pg.one(ctx, `
		select count(*), coalesce(min(id), '') from sales
		where entry_ticket and state <> 'closed' and closes_at > now()`, &sales, &one)
	keys := len(d.cfg.Entry.Keys)
	switch {
	case err != nil:
		d.failed(check, err, "run: sluice migrate")
	case !found: // the check of the schema says what to do
	case sales == 0:
		d.note(true, check, "not needed by any sale; "+strconv.Itoa(keys)+" keys here", "")
	default:
		needed := "needed by " + one
		if sales > 1 {
			needed += " and other sales"
		}
		d.note(keys > 0, check, needed+"; "+strconv.Itoa(keys)+" keys here",
			"set ENTRY_TICKET_KEYS for every api, and for this command: without it, orders of these sales are refused")
	}
}
