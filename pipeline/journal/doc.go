// Package journal keeps the accepts that an api process answers on the disk of its machine, until Postgres has them. A
// receipt then stands in two places that no single fault takes together: in Redis, and here. When Redis has lost
// something, package resubmit submits what a journal holds again.
//
// Read journal.go first: an api opens one Journal and appends each batch of accepts before it answers. record.go is the
// form of a batch on disk, with its checksum; segment.go the files, and how what is torn or corrupt is passed over;
// home.go makes the directory of a process, and takes over what processes left behind that died; trim.go deletes
// segments when Postgres has every order in them, and overdue.go reports to Postgres those that it should have by now;
// memory.go remembers what the disk did not take; presence.go reports
// to Postgres which journals there are, so that a verification of Redis waits for them.
//
// It relies on order ids: to submit an accept twice, or one that Redis still has, changes nothing. It does not decide
// when Redis has lost something (package recovery), and never keeps a buyer from an answer: where the disk fails, the
// receipt says so.
package journal
