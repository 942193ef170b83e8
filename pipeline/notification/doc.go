// Package notification brings changes of orders from the process that committed them to the clients that watch them.
//
// Read notifier.go first: after a commit, a process publishes over Redis which orders changed. hand_over_notifier.go
// does so for orders that a script made for the waitlist, and counts them. On the other side hub.go has the watched
// orders of a process: subscription.go receives the messages, due_queue.go keeps what is to be read from Postgres, and
// watch.go is what a client gets.
//
// Messages may be lost, repeated or overtake each other: only what Postgres says is delivered (of an order that it does
// not have, a watcher gets the hint to look elsewhere), and every watched order
// is also read every few seconds. The package changes no order, and does not check whose order is watched.
package notification
