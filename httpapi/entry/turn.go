package entry

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"time"

	"sluice/pipeline"
)

// turnPurpose separates the key of the turns from any other that may be derived from the same secret.
const turnPurpose = "sluice: turns of entry tickets, version 1"

// Turn is a buyer's place in the spread of a sale: a fraction of it, of 1<<32. It is drawn by a keyed hash of sale and
// buyer, so that it is the same however often, at whichever api and under whichever key a buyer asks, and can't be
// computed in advance by choosing a name.
type Turn uint32

// of is how far into a spread the turn is.
func (t Turn) of(spread time.Duration) time.Duration {
	return time.Duration(spread.Milliseconds()*int64(t)>>32) * time.Millisecond // at most 600,000 << 32
}

// NotBefore is when orders with the ticket are taken, for the opening that the sale has now. Buyers who were there
// before the opening are let in during the spread after it, each at the own turn. Those who asked later come after all
// of them, in a second spread; once both are over, at once. Without a spread, all are let in at the opening.
func (t Ticket) NotBefore(sale *pipeline.Sale) time.Time {
	turn := t.Turn.of(sale.EntrySpread)
	if t.GivenAt.Before(sale.OpensAt) {
		return sale.OpensAt.Add(turn)
	}
	return sale.OpensAt.Add(sale.EntrySpread + turn)
}

// turns draws the turns of an installation.
type turns struct{ key []byte }

// newTurns derives the key from a secret that all apis of an installation have, and that never changes.
func newTurns(secret []byte) (turns, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, turnPurpose, sha256.Size)
	return turns{key}, err
}

func (t turns) of(saleID, userID string) Turn {
	mac := hmac.New(sha256.New, t.key)
	_, _ = io.WriteString(mac, saleID+"\n"+userID) // documented never to fail; an id of a sale has no line break
	return Turn(binary.BigEndian.Uint32(mac.Sum(nil)))
}
