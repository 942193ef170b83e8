package deadletter

import (
	"time"

	"sluice/pipeline"
)

// Resolution says how an operator was done with a dead letter; empty while it waits for one.
type Resolution string

// The resolutions. Each is final.
const (
	Replayed  Resolution = "replayed"  // an order was made of it
	Discarded Resolution = "discarded" // no order will be made of it
)

// Letter is a dead letter as Postgres keeps it for an operator.
//
// Its Payload is the entry's fields as they are stored: a text is a string. Bytes that are no text are a map with their
// "base64", and a value that was cut to fit has its whole length as "bytes" beside it. In a list the Payload is nil:
// one letter can have megabytes of it.
type Letter struct {
	ID         int64
	CreatedAt  time.Time
	ResolvedAt time.Time // zero until it is resolved
	Resolution Resolution
	Note       string // why it was discarded
	ReplayID   string // of the order that a replay made, or may have made; empty before the first try
	Message
}

// Filter chooses dead letters. The zero value means those that wait for an operator, from the first id on.
type Filter struct {
	After  int64  // only letters with a greater id: the last one of the page before
	SaleID string // only letters of this sale
	Reason string // only letters for this reason
	All    bool   // those that are resolved too
	Limit  int    // at most so many; 0 or more than MaxLetters means MaxLetters
}

// MaxLetters bounds a page of dead letters: each may have some 12 KB of text besides its payload.
const MaxLetters = 500

// Why events become dead letters: these, and the outcomes of PersistOrders that are not an order that stands. The set
// is closed: it labels a metric.
const (
	Undecodable = "undecodable" // not written by admit.lua
	RedisLost   = "redis-lost"  // lost by Redis after it was accepted, and its units are gone
	Refused     = "refused"     // Postgres refuses a value, for instance units beyond the sale's total
)

// ReplayAs is what a replay asks for. It is kept from before the call until its outcome is known.
type ReplayAs struct {
	SaleID   string `json:"s"`
	UserID   string `json:"u"`
	Quantity int    `json:"q"`
}

// LetterResolution is the end of a dead letter, and the line of the audit log about it.
type LetterResolution struct {
	Resolution Resolution
	Actor      string
	SaleID     string            // empty where the letter names none
	OrderID    string            // of the order that was made; empty for a discarded letter
	Note       string            // of a discarded letter
	Repairs    map[string]string // of a replayed one
}

// Message is a stream entry that no worker could process, kept for an operator.
type Message struct {
	Partition  pipeline.Partition
	EntryID    string         // of the stream entry
	SaleID     string         // empty where the entry names none
	OrderID    string         // empty where the entry names none
	Payload    map[string]any // the entry's fields as Redis returned them: strings of any bytes
	Reason     string         // short and from a fixed set: it labels a metric
	Error      string         // the whole story
	Deliveries int64          // how often the entry was delivered before it was given up
}
