// Package recovery makes sure that nothing is sold from a Redis whose state is wrong, and that orders which Redis has
// lost come back from Postgres and the stream.
//
// A Verifier runs in every api and worker (verifier.go). It asks which partitions are trusted (trust.go). The others it
// compares with Postgres, in a round that closes them and opens them again (round.go). loss.go decides what of a sale
// Redis has lost; the sale is then rebuilt: rebuild.go takes the steps, collect.go finds out what the sale must be,
// stage_slots.go and stage_waitlist.go write it beside the old one. operator_rebuild.go does the same at an operator's
// request. resubmit_journaled.go decides when this process submits the accepts of its journal to Redis again, reopen.go
// waits until every process has done so, and watch.go looks for losses on partitions that are trusted.
//
// A Reconciler runs in the one worker that is elected (reconcile.go): it compares units and buyers while a sale is
// running, and exports what it finds. A Repairer (repair.go) rebuilds a sale that an audit has proved wrong.
//
// Postgres can go back, too. examine.go compares one that restarted, or took another's place, with the marks that Redis
// keeps; bring_home.go stores again what it has forgotten, restore_orders.go the orders of slots.
//
// The package relies on the scripts, which admit nobody on a partition that is not trusted, on the generation in
// Postgres, which refuses what was fetched before a verification, and on package audit for the proof that something is
// wrong. It does not bring back accepts that neither Postgres nor the stream has: the process that knows them submits
// them again (see package resubmit).
package recovery
