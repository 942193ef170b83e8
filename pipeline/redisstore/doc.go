// Package redisstore is what several stages of an order's way do with Redis outside of the scripts: it examines a
// server, creates the consumer groups, and reads what the scripts have written.
//
// probe.go finds out what a server can do and how it is configured, and refuses one that can't be trusted with orders.
// A process does so when it starts; admission repeats it on each of its connections. group.go creates the consumer
// group of every order stream, before a sale is loaded and whenever a worker joins. read.go reads a sale's counters,
// its slots, its waitlist and the events of a partition, for lookups, audits and rebuilds.
//
// It relies on the keys of package pipeline and on the formats of package lua. It changes nothing but the groups, keeps
// no state, and does not retry: each call is bounded by retry.CommandTimeout or by its caller's context.
package redisstore
