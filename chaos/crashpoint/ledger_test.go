package crashpoint

import (
	"strings"

	"sluice/pipeline/sales"
)

// ledger is an api that finds a Postgres which went back: it lacks orders that were settled, and has one as live whose
// unit Redis gave back. An order that waits in the stream came since.
func ledger() *scenario {
	return &scenario{
		name: "ledger", program: "api", from: "postgres elect verifier",
		steps: []string{
			"postgres name the server", "postgres look for a loss", "redis hmget", // compared
			"postgres begin a loss", "redis verify begin", "postgres begin generation", // begun
			"postgres list live orders", "postgres end what was forgotten", // ended
			"postgres look for orders", "postgres persist", // stored again
			"postgres spare", "postgres count what came home", "postgres finish a loss", // recorded
			"redis verify reopen", "redis verify finish", // open for lost accepts, then for all buyers
		},
		prepare: prepareLedger,
		done:    func(r *run) bool { return r.examined() && r.trusted() },
		recover: func(r *run) {
			r.takeOver("api", "worker")
			r.eventually("Postgres is examined and Redis trusted", func() bool { return r.examined() && r.trusted() })
			r.eventually("everything is settled", r.settled)
		},
		check: func(r *run) {
			r.balanced(saleID, "early-2", "forgotten-1", "forgotten-2", "waiting")
			r.same("orders", r.ordersOf(), []string{
				"early-1 cancelled", "early-2 awaiting_payment", "forgotten-1 awaiting_payment",
				"forgotten-2 awaiting_payment", "waiting awaiting_payment",
			})
			r.same("letters", r.lettersOf(), nil)
			r.same("losses", r.rows(`select (finished_at is null)::text, count(*)::text from ledger_losses
				where id > (select coalesce(max(id), 0) from saved_losses) group by 1`), []string{"false 1"})
			// What a process did before it died is in the report of the one that goes on. The order that waits in the
			// stream has a slot and no row either, and is stored with the others.
			r.same("reports", r.rows(`select (detail ->> 'settled') || ' settled ' || (detail ->> 'stored') || ' stored',
				(detail ->> 'restored') || ' restored ' || (detail ->> 'ended') || ' ended'
				from audit_log where action = 'ledger-loss'`), []string{"4 settled 2 stored 3 restored 1 ended"})
		},
	}
}

// ledgerTables are those that go back.
var ledgerTables = []string{"sales", "orders", "releases", "watermarks"}

func prepareLedger(r *run) {
	r.Helper()
	sale := aSale(saleID)
	sale.PaymentWindow = patience * 100
	r.must(sales.NewPublisher(r.rdb, keys, r.store, partitions, silent).Create(r.Context(), sale))
	sale = r.stored(saleID)
	worker := r.takeOver("worker")[0] // it counts in Redis what Postgres has
	stored := func() {
		r.Helper()
		r.eventually("everything is settled", r.settled)
	}
	r.eventually("Postgres is examined", r.examined)
	r.accept(sale, "early-1", "early-2")
	stored()
	r.save()
	r.accept(sale, "forgotten-1", "forgotten-2")
	stored()
	var id string
	r.must(r.pool.QueryRow(r.Context(), `select id::text from orders where user_id = 'early-1'`).Scan(&id))
	_, changed, err := r.store.CancelOrder(r.Context(), saleID, id, "early-1")
	if err != nil || !changed {
		r.Fatalf("cancel: %t, %v", changed, err)
	}
	stored()
	r.must(worker.Kill())
	r.accept(sale, "waiting")
	r.goBack()
}

// save keeps what goBack brings back.
func (r *run) save() {
	r.Helper()
	r.script("drop table if exists saved_losses; create table saved_losses as table ledger_losses")
	for _, table := range ledgerTables {
		r.script(strings.ReplaceAll("drop table if exists saved_T; create table saved_T as table T", "T", table))
	}
}

// goBack makes the tables what they were, as on a standby that lagged, and the server another one.
func (r *run) goBack() {
	r.Helper()
	restore := "begin; set local session_replication_role = replica;" // no trigger fires
	for _, table := range ledgerTables {
		restore += strings.ReplaceAll("delete from T; insert into T select * from saved_T;", "T", table)
	}
	r.script(restore + "update examined_server set identity = 'a primary that is gone'; commit")
}

// script runs statements that take no arguments.
func (r *run) script(statements string) {
	r.Helper()
	conn, err := r.pool.Acquire(r.Context())
	r.must(err)
	defer conn.Release()
	r.must(conn.Conn().PgConn().Exec(r.Context(), statements).Close())
}

// examined reports whether the server was compared with Redis.
func (r *run) examined() bool {
	return r.count(`select count(*) from examined_server where identity = server_identity()`) == 1
}
