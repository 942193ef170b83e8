package db

// grant is what each program may do with one table or sequence: a list of privileges, as GRANT takes it.
type grant struct{ on, api, worker, operator string }

// What is only read, and what is written but never changed or deleted.
const (
	reads = "select"
	adds  = "select, insert"
	keeps = "select, insert, update"
	owns  = "select, insert, update, delete"
)

// Columns that more than one program changes.
const (
	endsOrders = adds + ", update (status, closed_at, paid_at, payment_id, pay_by)"
	// A reduction, a release and a return count in the row of their sale.
	changesSales = adds + `, update (total, opens_at, closes_at, state, version, updated_at, title, max_quantity, waitlist,
		note, entry_ticket, entry_spread, max_quantity_ever, unit_price, currency, earlier_prices, reduce_to, reduce_actor,
		loading_at, loaded_at, retired_at,
		cleared_in, sold, withdrawn, moves)`
	takesMoney      = adds + ", update (outcome, reason, detail, order_status, decided_at, refunded_amount, refunded_at)"
	settlesReleases = adds + ", update (applied_at, given_back)"
	resolvesLetters = adds + ", update (replay_order_id, replay_as, resolved_at, resolution, note)"
	// A rebuild that is tried again is one line, as is one that has ended.
	notesRebuilds   = adds + ", update (at, actor, detail)"
	changesEndpoint = adds + `, update (secret, previous_secret, previous_secret_until, disabled_at, disabled_reason,
		failing_since, attempts, last_error, next_attempt_at, cursor, lease, leased_until, resends_after), delete`
)

// grants are all rights that the programs have. Tables of which nothing is named here can't even be read, so a
// migration that makes a table states here who needs it. The identity columns need no right on their
// sequences, foreign keys are checked as the owner, and functions do what their caller may do.
var grants = []grant{
	{"goose_db_version", reads, reads, reads},

	// The number of partitions is fixed by the first program that needs it.
	{"installation", adds, adds, adds},
	{"installation_id", reads, reads, reads},

	{"sales", changesSales, `select, update (total, version, updated_at, note, reduce_to, reduce_actor, loading_at,
		loaded_at, retired_at, cleared_in, orders_dropped_at, sold, withdrawn, moves)`, changesSales},
	{"limit_groups", adds, "", adds},
	{"sale_phases", keeps, keeps, keeps},

	{"orders", endsOrders, endsOrders + ", update (user_id), delete", endsOrders},
	{"releases", settlesReleases, settlesReleases + ", update (user_id), delete", settlesReleases},
	{"watermarks", keeps, keeps, keeps},
	{"unit_moves", keeps, owns, keeps},
	{"waitlist", adds + ", update (left_at, left_ticket)", "select, update (user_id), delete", reads},
	{"payments", takesMoney, takesMoney + ", update (user_id), delete", takesMoney},
	{"refunds", adds, "select, update (detail, note), delete", adds},
	{"dead_letters", resolvesLetters, resolvesLetters + ", update (payload, error), delete", resolvesLetters},

	{"audit_log", notesRebuilds, notesRebuilds + ", delete", notesRebuilds},
	{"operator_requests", owns, "select, update (body), delete", owns},
	{"operator_tokens", reads, "", adds + ", update (revoked_at, revoked_by)"},
	{"stream_key", reads, "", ""},

	// The api and the command line register endpoints and test them, which takes the secret; a worker signs with it.
	{
		"endpoints", changesEndpoint, `select, update (previous_secret, previous_secret_until, cursor, delivered_at,
		failing_since, attempts, last_error, next_attempt_at, disabled_at, disabled_reason, missed, lease,
		leased_until, resends_after)`,
		changesEndpoint,
	},
	{"outbox", adds, adds + ", update (position, data), delete", adds},
	{"outbox_positions", reads, "usage", reads},
	// Citus draws the ids itself, as the caller, where a part of a statement writes what another part has found.
	{"audit_log_id_seq", "usage", "usage", "usage"},
	{"endpoints_id_seq", "usage", "", "usage"},
	{"resends", owns, "select, update (attempts, next_attempt_at, failing_since), delete", owns},

	// A verification, which any of them may be asked for.
	{"generation", "select, update (number)", "select, update (number)", "select, update (number)"},
	{"verified_partitions", keeps, keeps, keeps},
	{"examined_server", keeps, keeps, keeps},
	{"ledger_losses", keeps, keeps, keeps},
	{"leases", owns, owns, owns},
	{"accept_journals", owns, reads, reads},
	{"covered_partitions", keeps, reads, reads},
	{"journal_reports", owns, reads, reads},
	{"overdue_accepts", "select, insert, delete", reads, reads},

	{"sale_drops", reads, keeps, reads},
	{"retention_policy", reads, keeps, reads},
	{"dropped_orders", reads, keeps, reads},
	{"dropped_payments", reads, keeps, reads},
	{"dropped_accepts", reads, keeps, reads},
	{"buyer_erasures", adds + ", update (actor)", "select, update", adds + ", update (actor)"},
}
