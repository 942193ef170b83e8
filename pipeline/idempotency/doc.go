// Package idempotency does what an operator asks for once, however often it is asked for under one Idempotency-Key.
//
// Read request.go (what a key stands for), then once.go (a try: claim the key, do the work, keep the answer), then
// claim.go, by which a store knows on whose behalf it changes something, and pruner.go.
//
// Three things together make it once. The key's row is claimed by one try at a time. The change marks the row in its
// own transaction, and fails if another try has claimed it since (db/migrations/00024_operator_requests.sql). And a try
// that finds the mark does not change anything again, but answers with what is. So a process may die anywhere: before
// the change, nothing is done; after it, the next try sees it. What happens in Redis follows from Postgres by versions,
// order ids and releases, and may be repeated anyway (docs/decisions/0026-keys-of-operators.md).
package idempotency
