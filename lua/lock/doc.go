// Package lock holds the scripts behind distributed locks, and one typed Go call for each; package sluice/lock is what
// callers use. A lock here is a plain string key whose value is its holder's token. Every script may run twice: the
// second run changes nothing. The package imports nothing of ours.
package lock
