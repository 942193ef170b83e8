package main

// defect is one way in which the product could be wrong.
type defect struct {
	name  string
	edits []edit
	// harmless says why nothing can go wrong all the same: then the run must be fine. Empty for those that it must catch.
	harmless string
	// caughtBy is the test that catches what a chaos run does not, or not every time. It is run in the place of one.
	caughtBy *test
}

// test names a test and where it is.
type test struct{ folder, name string }

// edit replaces the only occurrence of old in a file.
type edit struct{ file, old, new string }

var defects = []defect{
	{name: "ack-before-persist", edits: []edit{{
		"pipeline/worker/process.go",
		"		result, err = w.persist(deadline, generation, locked)\n",
		"		w.settle(ctx, locked)\n		result, err = w.persist(deadline, generation, locked)\n",
	}}},
	{name: "ack-what-others-locked", edits: []edit{{
		"pipeline/worker/process.go",
		"	w.finish(ctx, result.done)\n	buried, buryErr",
		"	if err == nil {\n		for _, e := range events {\n" +
			"			result.done = append(result.done, lockedEvent{Event: e})\n		}\n	}\n" +
			"	w.finish(ctx, result.done)\n	buried, buryErr",
	}}},
	{name: "no-claim", edits: []edit{{
		"pipeline/worker/worker.go",
		"	running.Go(func() { w.reclaimLoop(ctx) })\n",
		"",
	}}},
	{name: "group-from-the-end", edits: []edit{{
		"pipeline/redisstore/group.go",
		"		pipe.XGroupCreateMkStream(ctx, keys.Orders(p), pipeline.Group, \"0\")\n",
		"		start := map[bool]string{true: \"$\", false: \"0\"}[consumer != \"\"]\n" +
			"		pipe.XGroupCreateMkStream(ctx, keys.Orders(p), pipeline.Group, start)\n",
	}}, caughtBy: &test{"./pipeline/worker", "TestGroupLost"}},
	{name: "no-locks", edits: []edit{{
		"pipeline/worker/lock.go",
		"		case batch.Held[i]:\n",
		"		default:\n",
	}}, harmless: "the lock saves double work; what makes a second attempt harmless is the insert"},
	{name: "redelivery-counted-again", edits: []edit{{
		"db/persist_insert.go",
		"select sale_id, quantity as units from inserted\n",
		"select sale_id, quantity as units from input\n",
	}}},
	{name: "no-slot-check-in-admit", edits: []edit{{
		"lua/admit.lua",
		"    slot_of[users[i]] = slot\n",
		"    slot_of[users[i]] = nil\n",
	}}},
	{name: "no-slot-check-in-release", edits: []edit{{
		"lua/release.lua",
		"    elseif order == order_id then\n",
		"    elseif order then\n",
	}}},
	{name: "letter-without-release", edits: []edit{{
		"db/dead_letter_bury.go",
		"	batch.Queue(giveBackQuery, e.SaleID, e.OrderID, e.Sequence, e.UserID, e.Quantity, e.Partition, reason)\n",
		"",
	}}},
	{name: "refused-without-letter", edits: []edit{{
		"pipeline/worker/bury.go",
		"		if err := w.bury(ctx, entries, r); err != nil {\n			return buried, err\n		}\n",
		"",
	}}},
	{name: "nothing-was-lost", edits: []edit{{
		"pipeline/recovery/loss.go",
		"		if why != \"\" {\n			found",
		"		if false {\n			found",
	}}},
	{name: "no-watermark", edits: []edit{{
		"pipeline/recovery/loss.go",
		"	case s.Accepted < m.Accepted:\n		return \"accepts\"\n",
		"",
	}}},
	{name: "no-trust-in-admit", edits: []edit{{
		"lua/admit.lua",
		"local known = verified == server\n",
		"local known = true\n",
	}}},
	{name: "no-fence", edits: []edit{{
		"lua/admit.lua",
		"if known and fence > 0 and (tonumber(redis.call('GET', generation) or 0) or 0) < fence then\n",
		"if false then\n",
	}}, caughtBy: &test{"./pipeline/recovery", "TestAReplacedPrimarySellsNothing"}},
	{name: "settles-what-no-standby-has", edits: []edit{{
		"db/persist_conflicts.go",
		"		err = s.confirm(ctx)\n",
		"		err = nil\n",
	}}, caughtBy: &test{"./db", "TestAVisibleRowIsNoConfirmedOne"}},
	{name: "believes-a-cancelled-wait", edits: []edit{{
		"db/options.go",
		"	config.ConnConfig.OnNotice = noticeUnconfirmed\n",
		"",
	}}, caughtBy: &test{"./db", "TestAnUnconfirmedCommitIsNone"}},
	{name: "stays-with-a-demoted-primary", edits: []edit{{
		"db/primary.go",
		"		if err.Code != codeReadOnly {\n",
		"		if true {\n",
	}}, caughtBy: &test{"./pipeline/worker", "TestASwitchOverUnderLoad"}},
	{name: "no-adopted-journals", edits: []edit{{
		"pipeline/journal/journal.go",
		"	if err := j.adopt(); err != nil {\n",
		"	if err := error(nil); err != nil {\n",
	}, {
		"pipeline/journal/presence.go",
		"	if err := j.adopt(); err != nil || !j.down ",
		"	if err := error(nil); err != nil || !j.down ",
	}}, caughtBy: &test{"./pipeline/recovery", "TestAKilledAPIsAcceptsComeBack"}},
	{name: "opens-before-the-journals", edits: []edit{{
		"pipeline/recovery/reopen.go",
		"	if err := r.awaitJournals(ctx, generation, partitions); err != nil {\n",
		"	if err := error(nil); err != nil {\n",
	}}, caughtBy: &test{"./pipeline/recovery", "TestALateReplicaOpensAfterTheJournals"}},
	{name: "elected-for-ever", edits: []edit{{
		"db/leases.go",
		"		where l.holder = excluded.holder or l.expires_at <= clock_timestamp()\n",
		"		where l.holder = excluded.holder\n",
	}}, caughtBy: &test{"./db", "TestALeaseOutlivesItsHolderByLittle"}},
	{name: "expiry-by-one-clock", edits: []edit{{
		"db/cancel_expire.go",
		"pay_by < least(now(), $3)",
		"pay_by < greatest(now(), $3)",
	}}, caughtBy: &test{"./db", "TestAClockThatIsWrongExpiresNothing"}},
	{name: "resubmits-who-left", edits: []edit{{
		"pipeline/resubmit/resubmit.go",
		"		case left[id]:\n",
		"		case left[id] && false:\n",
	}}, caughtBy: &test{"./pipeline/waitlist", "TestAHandOverToABuyerWhoLeft"}},
	{name: "rebuild-forgets-the-slots", edits: []edit{{
		"pipeline/recovery/rebuild.go",
		"r.rebuild(ctx, l, append(events, orphans...))",
		"r.rebuild(ctx, l, append(events, orphans[:0]...))",
	}}, caughtBy: &test{"./pipeline/recovery", "TestARebuildBeforeTheRepair"}},
	{name: "strict-asks-nobody", edits: []edit{{
		"pipeline/admission/strict.go",
		"	if !ok || !c.strict {\n",
		"	if ok || !c.strict {\n",
	}}, caughtBy: &test{"./pipeline/admission", "TestWithoutAReplicaNothingIsTaken"}},
	{name: "strict-tells-less", edits: []edit{{
		"pipeline/admission/strict.go",
		"return !c.strict || level == c.want }\n",
		"return !c.strict || level != \"\" }\n",
	}}, caughtBy: &test{"./pipeline/admission", "TestAnUnconfirmedAcceptIsNotTold"}},
	{name: "memory-never-dropped", edits: []edit{{
		"pipeline/admission/refusals.go",
		"	if r.age(now) >= refusalAge {\n",
		"	if false {\n",
	}, {
		"pipeline/admission/refusals.go",
		"{ // somebody may be accepted\n		g.refusal.Store(nil)\n",
		"{\n",
	}}, caughtBy: &test{"./pipeline/admission", "TestAUnitThatIsGivenBackIsSoldDuringAFlood"}},
	{name: "memory-outlives-trust", edits: []edit{{
		"pipeline/admission/refusals.go",
		"	if r.age(now) >= refusalAge {\n",
		"	if false {\n",
	}, {
		"pipeline/admission/refusals.go",
		"		if !reply.Known || reply.Sales[i].State == \"\" {\n			w.forget(state)\n",
		"		if !reply.Known || reply.Sales[i].State == \"\" {\n",
	}}, caughtBy: &test{"./pipeline/admission", "TestMemoryEndsWithTheTrustInRedis"}},
	{name: "keys-end-with-their-orders", edits: []edit{{
		"lua/release.lua",
		"      if key ~= '-' then\n",
		"      if false then\n",
	}}, caughtBy: &test{"./lua", "TestAKeyOutlivesItsOrder"}},
	{name: "memory-forgets-the-holders", edits: []edit{{
		"pipeline/admission/refusals.go",
		"; perhaps {\n",
		"; perhaps && false {\n",
	}}, caughtBy: &test{"./pipeline/admission", "TestASoldOutSaleNeedsNoRedis"}},
	{name: "rebuild-forgets-postgres", edits: []edit{{
		"pipeline/recovery/collect.go",
		"	c.stock = sale.ShareOf(p, sale.Total) + c.moves.MovedIn - c.moves.MovedOut - units - ledger.Withdrawn[p]\n",
		"	c.stock = sale.ShareOf(p, sale.Total)\n",
	}}},
	{name: "rebuild-forgets-moves", edits: []edit{{
		"pipeline/recovery/collect.go",
		"	c.stock = sale.ShareOf(p, sale.Total) + c.moves.MovedIn - c.moves.MovedOut - units - ledger.Withdrawn[p]\n",
		"	c.stock = sale.ShareOf(p, sale.Total) - units - ledger.Withdrawn[p]\n",
	}}, caughtBy: &test{"./pipeline/moves", "TestAMoveOutlivesItsProcess"}},
	{name: "sold-out-by-one-partition", edits: []edit{{
		"pipeline/admission/elsewhere.go",
		"		if err != nil || alone || decision.Result != SoldOut {\n",
		"		if err != nil || alone || decision.Result != \"\" {\n",
	}}, caughtBy: &test{"./pipeline/moves", "TestTheLastUnitIsSold"}},
	{name: "sold-out-while-units-move", edits: []edit{{
		"pipeline/moves/reading.go",
		"	return in == out\n",
		"	return true\n",
	}}, caughtBy: &test{"./pipeline/moves", "TestTheLastUnitIsSold"}},
	{name: "rebuild-sells-what-was-withdrawn", edits: []edit{{
		"pipeline/recovery/collect.go",
		"	c.stock = sale.ShareOf(p, sale.Total) + c.moves.MovedIn - c.moves.MovedOut - units - ledger.Withdrawn[p]\n",
		"	c.stock = sale.ShareOf(p, sale.Total) + c.moves.MovedIn - c.moves.MovedOut - units\n",
	}}, caughtBy: &test{"./pipeline/lifecycle", "TestReturnedUnits"}},
	{name: "part-of-a-refund-is-all", edits: []edit{{
		"pipeline/payments/refund.go",
		"	case r.Amount < left && r.Currency == p.Currency && r.Partial:\n",
		"	case r.Amount < left && r.Currency == p.Currency:\n",
	}}, caughtBy: &test{"./db", "TestAPartialRefundIsNeverSilent"}},
	{name: "rebuild-forgets-the-stream", edits: []edit{{
		"pipeline/recovery/collect.go",
		"	for _, e := range events {\n		if known[e.OrderID] || buyers[e.UserID] {\n",
		"	for _, e := range events {\n		if true {\n",
	}}, caughtBy: &test{"./pipeline/recovery", "TestAnOlderStateIsRebuilt"}},
	{name: "no-generation", edits: []edit{{
		"db/persist_insert.go",
		"	select number from join_generation() as number where number = $9 and",
		"	select number from join_generation() as number where (number = $9 or true) and",
	}}, caughtBy: &test{"./db", "TestAStaleGenerationPersistsNothing"}},
	{name: "no-recent-accepts", edits: []edit{{
		"pipeline/resubmit/journaled.go",
		"		if err := j.submit(ctx, at, accepts, counts); err != nil && failed[at.Partition] == nil {\n",
		"		if err := error(nil); err != nil {\n",
	}}},
	{name: "no-witness", edits: []edit{{
		"pipeline/audit/look.go",
		"	seen.report.checkReceipts(witnesses)\n",
		"",
	}}, caughtBy: &test{"./pipeline/audit", "TestAVanishedReceiptIsFound"}},
	{name: "no-issuer-of-numbers", edits: []edit{{
		"lua/lease.lua",
		"if redis.call('GET', issuer) ~= server or redis.call('EXISTS', counter) == 0 then\n",
		"if redis.call('EXISTS', counter) == 0 then\n",
	}}, caughtBy: &test{"./pipeline/ordernumber", "TestARestoredCounterRepeatsNoNumber"}},
	{name: "stale-not-resubmitted", edits: []edit{{
		"pipeline/worker/stale_generation.go",
		"	for at, group := range bySalePartition(events) {\n",
		"	for at, group := range bySalePartition(events[:0]) {\n",
	}}, caughtBy: &test{"./pipeline/recovery", "TestInFlightEventsOutliveALoss"}},
}
