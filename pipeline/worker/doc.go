// Package worker carries accepted orders from the streams of Redis to Postgres: the stage of an order's way between
// admission and lifecycle. Any number of workers may run; one that dies loses nothing, because the others take over its
// events.
//
// Read worker.go first, the options and the life of a worker; then the way of a batch in its order: consume.go fetches
// it, process.go leads it through the steps, ownership.go checks that its events are of this installation, decode.go
// reads them, lock.go takes the locks of its orders, persist.go writes them and isolates what Postgres refuses,
// outcome.go tells orders that stand from those that conflict, settle.go removes their events from the stream, and
// bury.go makes dead letters of those that can't become orders. stale_generation.go submits events again that Redis may
// have lost.
//
// Around it: heartbeat.go shows that the worker lives, reclaim.go takes over what others or lost replies left behind,
// reap.go removes dead consumers, leave.go ends a worker, schedule.go runs the background jobs of the other packages,
// rehearse.go tries what an event needs, for /readyz, and observe.go and metrics.go measure.
//
// It relies on inserts that change nothing when they are repeated: locks and heartbeats only save work. It does not
// decide what is sold, and gives no units back itself; releases go through package lifecycle.
package worker
