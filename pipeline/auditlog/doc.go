// Package auditlog is what operators read of the audit log: who did what, when, to what, and what was there before and
// after. It only reads: each line is written in the transaction of the change itself, by package db.
//
// Read entry.go (a line), then filter.go (which lines).
package auditlog
