// Package erasure replaces a buyer's id by a pseudonym wherever Postgres has it, once Redis has left it.
//
// Read in this order: erasure.go (what is asked for and what became of it), words.go (an id in free text), eraser.go
// (the job).
package erasure
