package lifecycle_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/pipeline"
	"sluice/pipeline/lifecycle"
)

func TestACursorIsAPosition(t *testing.T) {
	t.Parallel()
	for _, p := range []lifecycle.OrderPosition{
		{},
		{AcceptedAt: time.Date(2026, 11, 27, 10, 0, 0, 123_456_000, time.UTC), OrderID: uuid.Must(uuid.NewV7())},
		{AcceptedAt: time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC), OrderID: uuid.New()},
	} {
		got, err := lifecycle.OrderPositionOf(p.Cursor())
		if err != nil || got.OrderID != p.OrderID || !got.AcceptedAt.Equal(p.AcceptedAt) && !p.IsZero() {
			t.Errorf("%q: got %+v, %v, want %+v", p.Cursor(), got, err, p)
		}
	}
	whole := lifecycle.OrderPosition{AcceptedAt: time.Now(), OrderID: uuid.New()}.Cursor()
	for _, cursor := range []string{"x", whole[1:], whole + "AA", "B" + whole[1:], strings.Repeat("_", len(whole)), "é"} {
		if got, err := lifecycle.OrderPositionOf(cursor); pipeline.KindOf(err) != pipeline.KindInvalid {
			t.Errorf("%q: got %+v, %v, want KindInvalid", cursor, got, err)
		}
	}
}
