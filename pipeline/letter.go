package pipeline

import (
	"encoding/base64"
	"time"
	"unicode/utf8"
)

// Resolution says how an operator was done with a dead letter; empty while it waits for one.
type Resolution string

// The resolutions. Each is final.
const (
	LetterReplayed  Resolution = "replayed"  // an order was made of it
	LetterDiscarded Resolution = "discarded" // no order will be made of it
)

// Letter is a dead letter as Postgres keeps it for an operator.
//
// Its Payload is the entry's fields as they are stored: a text is a string. Bytes that are no text are a map with their
// "base64", and a value that was cut to fit has its whole length as "bytes" beside it. In a list the Payload is nil: one
// letter can have megabytes of it.
type Letter struct {
	ID         int64
	CreatedAt  time.Time
	ResolvedAt time.Time // zero until it is resolved
	Resolution Resolution
	Note       string // why it was discarded
	ReplayID   string // of the order that a replay made, or may have made; empty before the first try
	DeadLetter
}

// LettersFilter chooses dead letters. The zero value means those that wait for an operator, from the first id on.
type LettersFilter struct {
	After  int64  // only letters with a greater id: the last one of the page before
	SaleID string // only letters of this sale
	Reason string // only letters for this reason
	All    bool   // those that are resolved too
	Limit  int    // at most so many; 0 or more than MaxLetters means MaxLetters
}

// MaxLetters bounds a page of dead letters: each may hold some 12 KB of text besides its payload.
const MaxLetters = 500

// Bounds of what an operator writes about a change.
const (
	MaxActorBytes = 128  // fits a name, an address, a subject of OIDC
	MaxNoteBytes  = 1000 // some sentences
)

// ValidateActor returns a KindInvalid error for a name that the audit log can't hold.
func ValidateActor(actor string) error {
	if actor == "" || len(actor) > MaxActorBytes || !utf8.ValidString(actor) || hasControl(actor) {
		return Errorf(KindInvalid, "actor: use 1 to %d bytes of UTF-8 without control characters", MaxActorBytes)
	}
	return nil
}

// field is the value of a payload's field as the stream held it, unless it was cut.
func (l *Letter) field(name string) (string, bool) {
	switch value := l.Payload[name].(type) {
	case string:
		return value, true
	case map[string]any:
		encoded, _ := value["base64"].(string)
		plain, err := base64.StdEncoding.DecodeString(encoded)
		return string(plain), err == nil
	default:
		return "", false
	}
}

// resolvedError says that a letter is done with, since when and how; nil while it is not.
func (l *Letter) resolvedError() error {
	switch l.Resolution {
	case "":
		return nil
	case LetterReplayed:
		return Errorf(KindConflict, "dead letter %d was replayed at %s as order %s; nothing is left to do",
			l.ID, showTime(l.ResolvedAt), l.ReplayID)
	default:
		return Errorf(KindConflict, "dead letter %d was %s at %s; nothing is left to do", l.ID, l.Resolution, showTime(l.ResolvedAt))
	}
}
