package entry

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"sluice/pipeline"
)

// Life is how long a ticket is good after it was given. It is a multiple of the longest lead, so that one from the
// beginning of that is good for half a day after the opening; a buyer may ask for another one at any time.
const Life = 24 * time.Hour

// A ticket is the base64url, without padding, of these bytes:
//
//	1      version, 1
//	1      length of the key's id, 1 to 16
//	1..16  the key's id
//	8      when it was given, in Unix ms, big endian
//	4      the buyer's turn, big endian: see turn.go
//	32     HMAC-SHA256 over all of that, the sale and the buyer
//
// Sale and buyer are signed and not in it: both are known to the api that verifies it, and a ticket that gets into a
// log names nobody.
const (
	version       = 1
	maxFieldBytes = 1 + 1 + maxKeyIDBytes + 8 + 4
	maxRawBytes   = maxFieldBytes + sha256.Size
	maxTextBytes  = (maxRawBytes*8 + 5) / 6
	// maxSignedBytes are all fields, and sale and buyer with a length.
	maxSignedBytes = maxFieldBytes + 1 + 64 + pipeline.MaxUserIDBytes
)

// encoding is strict: of the texts that decode to the same bytes, one is a ticket.
var encoding = base64.RawURLEncoding.Strict()

// Ticket is what an entry ticket says of its buyer and sale.
type Ticket struct {
	GivenAt time.Time // to the millisecond
	Turn    Turn
}

// ExpiresAt is when it stops being good.
func (t Ticket) ExpiresAt() time.Time { return t.GivenAt.Add(Life) }

// Flaw is why a text is no ticket. The values are labels of a metric.
type Flaw string

// The flaws. A ticket of another buyer, or of another sale, can't be told from one that was made up.
const (
	Malformed  Flaw = "malformed"
	UnknownKey Flaw = "unknown-key"
	Forged     Flaw = "forged"
	Expired    Flaw = "expired"
)

func (f Flaw) Error() string {
	switch f {
	case Expired:
		return "the entry ticket has expired"
	case UnknownKey:
		return "the entry ticket was signed with a key that is not in use any more"
	case Forged:
		return "the entry ticket is not one of this buyer for this sale"
	default:
		return "this is no entry ticket"
	}
}

// Sign makes the text of a ticket, of at most 83 bytes. It fails without a key only.
func (r *Ring) Sign(t Ticket, saleID, userID string) (string, error) {
	signer := r.first()
	if signer == nil {
		return "", errNoKey
	}
	raw := make([]byte, 0, maxRawBytes)
	raw = append(raw, version, byte(len(signer.id)))
	raw = append(raw, signer.id...)
	raw = binary.BigEndian.AppendUint64(raw, uint64(t.GivenAt.UnixMilli()))
	raw = binary.BigEndian.AppendUint32(raw, uint32(t.Turn))
	return encoding.EncodeToString(signer.code(raw, raw, saleID, userID)), nil
}

// Verify returns what a text says of a buyer and a sale, if it is a ticket of theirs at an instant. Errors: Flaw.
func (r *Ring) Verify(text, saleID, userID string, now time.Time) (Ticket, error) {
	var given [maxTextBytes]byte
	var room [maxRawBytes]byte
	if len(text) > maxTextBytes || strings.ContainsAny(text, "\r\n") { // which the decoder would skip
		return Ticket{}, Malformed
	}
	n, err := encoding.Decode(room[:], given[:copy(given[:], text)])
	raw := room[:n]
	if err != nil || n < 2 || raw[0] != version {
		return Ticket{}, Malformed
	}
	idBytes := int(raw[1])
	fields := n - sha256.Size
	if idBytes < 1 || idBytes > maxKeyIDBytes || fields != 2+idBytes+8+4 {
		return Ticket{}, Malformed
	}
	signer := r.named(raw[2 : 2+idBytes])
	if signer == nil {
		return Ticket{}, UnknownKey
	}
	var code [sha256.Size]byte
	if !hmac.Equal(raw[fields:], signer.code(code[:0], raw[:fields], saleID, userID)) {
		return Ticket{}, Forged
	}
	t := Ticket{
		GivenAt: time.UnixMilli(int64(binary.BigEndian.Uint64(raw[fields-12:]))).UTC(),
		Turn:    Turn(binary.BigEndian.Uint32(raw[fields-4:])),
	}
	if !now.Before(t.ExpiresAt()) {
		return Ticket{}, Expired
	}
	return t, nil
}
