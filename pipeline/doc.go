// Package pipeline is the domain of Sluice: a sale, the orders placed in it, and the Redis keys, events, statuses and
// errors that all its parts share. It has no behaviour beyond rules on these values. The work is done in the packages
// below it, here in the order of an order's way:
//
//   - sales: an operator defines a sale in Postgres, and it is published to Redis
//   - admission: a script in Redis answers the buyer's request; it takes the units and writes the event in one step
//   - ordernumber: the number that an accepted order gets
//   - worker: fetches the events, persists them in Postgres and settles them; takes over the events of dead workers
//   - deadletter: keeps events that can't become orders, and replays them
//   - lifecycle: looks orders up, cancels and expires them, and gives their units back to Redis
//   - payments: matches payments with orders
//   - waitlist: buyers who wait for a sold-out sale, and the hand-over of units to them
//   - notification: publishes changes of orders to subscribers
//   - audit: checks that nothing was lost or sold twice
//   - recovery: verifies Redis after a restart, and rebuilds what it lost from Postgres
//   - resubmit: submits accepts to Redis again that it may have lost
//
// The rest serves all of them: redisstore (reads Redis, examines its settings), retry (time limits and backoff),
// installation (which installation a Redis belongs to), metrics (all of them at once) and pipelinetest (the rig of
// their tests).
//
// Postgres is reached only through the small interfaces that the packages declare for their needs; package db
// implements them. Redis is changed through the scripts of package lua.
//
// Read sale.go, order_request.go, event.go, order.go and transition.go first; the other files hold what two or more of
// the packages exchange.
package pipeline
