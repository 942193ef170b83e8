// Package sales defines and changes sales, brings them to Redis, and answers what is on sale.
//
// Read publisher.go first: a sale is written to Postgres, which is authoritative, and then loaded into or adjusted in
// Redis; a job repeats whatever a crash left out. Then catalogue.go, a process' memory of all sales, at most a second
// old, and stock.go, the units left, at most a quarter of a second old.
//
// It relies on package redisstore to read what Redis has, and on the scripts to accept a definition only if it is
// newer. It never loads a sale a second time that Redis has lost: that would sell its orders again, and is for package
// recovery. Catalogue and stock are for pages and checks; whether an order is accepted is decided by Redis alone.
package sales
