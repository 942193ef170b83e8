// Package ordernumber issues the numbers that buyers and operators read out. An order gets its number on the way to the
// script that accepts it, and keeps it through every retry; admission, the waitlist and the replay of dead letters take
// them.
//
// Begin with generator.go. A Generator leases blocks of a daily counter in Redis, and builds a number from the second
// and the counter; veil.go hides how fast that counts. It relies on the script lua/lease.lua, which continues from a
// random place when Redis has lost the counter or has come back with an older one; that two blocks in use overlap is
// then as good as impossible.
//
// It does not issue numbers without gaps (a process that ends leaves the rest of its block unused), and does not retry:
// a failed lease is an error of the caller's attempt.
package ordernumber
