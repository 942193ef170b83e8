package lifecycle

import (
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/google/uuid"

	"sluice/pipeline"
)

// OrderPosition is a place in a list of orders: that of the last order looked at. Nothing that an operator does to
// orders moves it.
type OrderPosition struct {
	AcceptedAt time.Time
	OrderID    uuid.UUID
}

// cursorForm is the first byte of a cursor, so that another form can be told from this one.
const cursorForm = 1

// cursorBytes is a form, a time in microseconds and a UUID.
const cursorBytes = 1 + 8 + 16

// IsZero reports whether this is no place: before the first order, or after the last.
func (p OrderPosition) IsZero() bool { return p.OrderID == uuid.Nil }

// Cursor is the position as clients get it: 34 characters without a meaning of their own; "" for none.
func (p OrderPosition) Cursor() string {
	if p.IsZero() {
		return ""
	}
	b := append(make([]byte, 0, cursorBytes), cursorForm)
	b = binary.BigEndian.AppendUint64(b, uint64(p.AcceptedAt.UnixMicro()))
	return base64.RawURLEncoding.EncodeToString(append(b, p.OrderID[:]...))
}

// OrderPositionOf reads a cursor. Errors: KindInvalid.
func OrderPositionOf(cursor string) (OrderPosition, error) {
	if cursor == "" {
		return OrderPosition{}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(b) != cursorBytes || b[0] != cursorForm {
		return OrderPosition{}, pipeline.Errorf(pipeline.KindInvalid, "after: use next_after of the page before")
	}
	at := time.UnixMicro(int64(binary.BigEndian.Uint64(b[1:9]))).UTC()
	if year := at.Year(); year < 1 || year > 9999 { // beyond what Postgres and JSON can say
		return OrderPosition{}, pipeline.Errorf(pipeline.KindInvalid, "after: use next_after of the page before")
	}
	return OrderPosition{AcceptedAt: at, OrderID: uuid.UUID(b[9:])}, nil
}
