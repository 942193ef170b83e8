package erasure

import "time"

// Erasure is the replacement of one buyer's id by a pseudonym.
type Erasure struct {
	ID          int64
	Pseudonym   string
	Actor       string
	RequestedAt time.Time
	LookedAt    time.Time // when it was worked on last; zero: it was not yet
	WaitsFor    int       // sales with something of the buyer that Redis still had then
	Rows        int64     // that were changed
	FinishedAt  time.Time // zero: something is left
}

// MaxListed is the most erasures of one page.
const MaxListed = 500

// Kind says how an id stands in a column.
type Kind int

// The kinds.
const (
	Text  Kind = iota // free text
	JSON              // a JSON document
	Bytes             // a JSON document, as bytes
)
