package crashpoint

// rebuild is an api that finds a Redis which has lost a sale and its buyers, but not the stream: it verifies, stages,
// installs and opens.
func rebuild() *scenario {
	return &scenario{
		name: "rebuild", program: "api", from: "postgres elect verifier",
		steps: []string{
			"postgres elect verifier", "redis verify begin", "postgres begin generation", // begun
			"postgres read all watermarks", "redis hmget", // compared
			"redis xrange", "redis hset", "redis pexpire staged", "postgres record rebuild", "redis install", // rebuilt
			"redis verify reopen", "redis verify finish", // open for lost accepts, then for all buyers
		},
		prepare: func(r *run) {
			sale := r.openSale()
			r.accept(sale, "persisted-1", "persisted-2")
			r.persist()
			r.accept(sale, "waiting-1", "waiting-2")
			r.must(r.rdb.Del(r.Context(), keys.Sale(only, saleID), keys.Buyers(only, saleID), keys.Trusted(only)).Err())
		},
		done: func(r *run) bool { return r.trusted() },
		recover: func(r *run) {
			r.takeOver("api", "worker")
			r.eventually("Redis is trusted", r.trusted)
			r.eventually("everything is settled", r.settled)
		},
		check: func(r *run) {
			r.balanced(saleID, "persisted-1", "persisted-2", "waiting-1", "waiting-2")
			r.same("orders", r.ordersOf(), []string{
				"persisted-1 confirmed", "persisted-2 confirmed", "waiting-1 confirmed", "waiting-2 confirmed",
			})
			r.same("letters", r.lettersOf(), nil)
			if len(r.rows(`select sale_id, action from audit_log where action = 'rebuild'`)) == 0 {
				r.Errorf("the sale was rebuilt, and the audit log does not say so")
			}
		},
	}
}
