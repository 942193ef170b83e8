// Package admission answers order requests: it is the first stage of an order's way, and the one that a buyer waits
// for. A script in Redis decides; it takes the units, fills the buyer's slot and appends the event in one step.
//
// Read controller.go first, the entrance of all requests, and request.go, which gives each its order id; then gate.go,
// which batches the requests of one sale and partition and repeats a call whose reply was lost; attempt.go, one call of
// the script, on a connection of connections.go whose server examine.go has seen; confirm.go, which finds out how
// durable its accepts are; strict.go, which refuses orders where that must be DURABILITY and can't be; journal.go,
// which keeps the accepts, to submit them again if Redis loses them; and decision.go, what the buyer is answered.
// refusals.go answers a flood that Redis would refuse, from memory. rehearse.go does all of it but the order, for
// /readyz.
//
// It relies on the sale being in Redis (package sales) and on Redis being verified (package recovery); until then it
// answers KindNotLoaded. It never asks Postgres. It persists nothing: from the event on, an order belongs to package
// worker.
package admission
