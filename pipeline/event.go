package pipeline

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// eventVersion is the schema version that admit.lua writes and DecodeEvent reads.
const eventVersion = 1

// maxSequence is the highest accept of a sale on a partition that is believed: at 100,000 accepts a second it takes
// four months. One that is forged moves the watermark no further than that, and the script, which counts to 2^53, goes
// on.
const maxSequence = 1 << 40

// maxKeyHash bounds the hash of an Idempotency-Key, in bytes.
const maxKeyHash = 64

// Event is one accepted order on its way from the stream to Postgres.
type Event struct {
	Partition   Partition
	EntryID     string // of the stream entry
	SaleID      string
	Sequence    int64
	OrderID     string
	Number      int64
	UserID      string
	Quantity    int
	AcceptedAt  time.Time
	KeyHash     string // of the Idempotency-Key; empty where the request had none
	TraceParent string // W3C trace context; empty when the request was not sampled
	Ticket      int64  // on the waitlist, of an order that was handed over; 0 for one that its buyer placed
}

// Accept is an accepted order as its buyer's slot stores it: the event, and the hash of the request that made it.
type Accept struct {
	Event
	PayloadHash string // see lua.AdmitRequest; empty where the request had no Idempotency-Key
}

// DecodeEvent reads a stream entry. Its error names the first field that is missing or out of range; such an entry was
// not written by admit.lua and can never be persisted.
func DecodeEvent(p Partition, entryID string, fields map[string]any) (Event, error) {
	d := decoder{fields: fields}
	if v := d.integer("v", 1, 1<<31); d.err == nil && v != eventVersion {
		return Event{}, fmt.Errorf("field v: schema version %d is not known, this build reads %d", v, eventVersion)
	}
	e := Event{
		Partition:   p,
		EntryID:     entryID,
		SaleID:      d.text("s"),
		Sequence:    d.integer("k", 1, maxSequence),
		OrderID:     d.text("o"),
		Number:      d.integer("n", 1, 1<<63-1),
		UserID:      d.text("u"),
		Quantity:    int(d.integer("q", 1, MaxQuantityLimit)),
		AcceptedAt:  time.UnixMilli(d.integer("t", 1, 1<<48)).UTC(),
		KeyHash:     d.optional("h"),
		TraceParent: d.optional("tp"),
	}
	if d.optional("w") != "" {
		e.Ticket = d.integer("w", 1, maxSequence)
	}
	switch id, err := uuid.Parse(e.OrderID); {
	case d.err != nil:
		return Event{}, d.err
	case err != nil || id.String() != e.OrderID:
		return Event{}, fmt.Errorf("field o: %q is not a UUID", Clip(e.OrderID))
	case len(e.KeyHash) > maxKeyHash || strings.ContainsAny(e.KeyHash, " ;\x00") || !utf8.ValidString(e.KeyHash):
		return Event{}, fmt.Errorf("field h: %q is not a hash", Clip(e.KeyHash))
	case !ValidSaleID(e.SaleID):
		return Event{}, fmt.Errorf("field s: %q is not a sale id", Clip(e.SaleID))
	}
	if err := ValidateUserID(e.UserID); err != nil {
		return Event{}, fmt.Errorf("field u: %w", err)
	}
	return e, nil
}

// Fields are the stream's fields of an event, as admit.lua writes them.
func (e *Event) Fields() map[string]any {
	fields := map[string]any{
		"v": strconv.Itoa(eventVersion), "s": e.SaleID, "k": strconv.FormatInt(e.Sequence, 10), "o": e.OrderID,
		"n": strconv.FormatInt(e.Number, 10), "u": e.UserID, "q": strconv.Itoa(e.Quantity),
		"t": strconv.FormatInt(e.AcceptedAt.UnixMilli(), 10),
	}
	if e.KeyHash != "" {
		fields["h"] = e.KeyHash
	}
	if e.TraceParent != "" {
		fields["tp"] = e.TraceParent
	}
	if e.Ticket > 0 {
		fields["w"] = strconv.FormatInt(e.Ticket, 10)
	}
	return fields
}

// decoder keeps the first error, so that DecodeEvent can be a plain list of fields.
type decoder struct {
	fields map[string]any
	err    error
}

func (d *decoder) optional(name string) string {
	s, _ := d.fields[name].(string)
	return s
}

func (d *decoder) text(name string) string {
	s, ok := d.fields[name].(string)
	if !ok && d.err == nil {
		d.err = fmt.Errorf("field %s is missing", name)
	}
	return s
}

func (d *decoder) integer(name string, least, most int64) int64 {
	s := d.text(name)
	if d.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < least || n > most {
		d.err = fmt.Errorf("field %s: %q is not an integer from %d to %d", name, Clip(s), least, most)
	}
	return n
}

// Clip shortens a text for an error message to 64 bytes and an ellipsis: a stream entry may contain anything.
func Clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
