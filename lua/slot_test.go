package lua_test

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sluice/lua"
)

func TestParseSlotReadsWhatIsWritten(t *testing.T) {
	t.Parallel()
	word := rapid.StringMatching(`[!-,.-~][!-~]{0,40}`) // printable, no space, not a lone dash
	rapid.Check(t, func(t *rapid.T) {
		want := lua.Slot{
			OrderID:     word.Draw(t, "order id"),
			Quantity:    rapid.IntRange(1, math.MaxInt32).Draw(t, "quantity"),
			Number:      rapid.Int64Range(1, math.MaxInt64).Draw(t, "number"),
			AcceptedMS:  rapid.Int64Range(1, 1<<48).Draw(t, "accepted_ms"),
			Sequence:    rapid.Int64Range(1, 1<<53).Draw(t, "sequence"),
			KeyHash:     rapid.OneOf(rapid.Just(""), word).Draw(t, "key hash"),
			PayloadHash: rapid.OneOf(rapid.Just(""), word).Draw(t, "payload hash"),
		}
		got, err := lua.ParseSlot(slotText(want))
		if err != nil || got != want {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	})
}

func TestParseSlotRefusesEverythingElse(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " ", "a", "a 1 2 3 4 -", "a 1 2 3 4 - - ", "a 1 2 3 4 - - -", " 1 2 3 4 - -", "a  1 2 3 4 - -", "a 1 2 3 4 -  -",
		"a 0 2 3 4 - -", "a -1 2 3 4 - -", "a 1.5 2 3 4 - -", "a 1 9223372036854775808 3 4 - -", "a 1 2 1e+15 4 - -",
		"a 1 2 3 x - -",
		"a\t1 2 3 4 - -",
	} {
		if got, err := lua.ParseSlot(text); err == nil {
			t.Errorf("%q: got %+v", text, got)
		}
	}
}

// FuzzParseSlot: whatever is read, it is read exactly.
func FuzzParseSlot(f *testing.F) {
	f.Add("01890000-0000-7000-8000-000000000001 1 2 3 4 - -")
	f.Add("a 1 2 3 4 key payload")
	f.Fuzz(func(t *testing.T, text string) {
		slot, err := lua.ParseSlot(text)
		if err != nil {
			return
		}
		if again, err := lua.ParseSlot(slotText(slot)); err != nil || again != slot {
			t.Errorf("%q: read as %+v, then as %+v, %v", text, slot, again, err)
		}
		if strings.Count(text, " ") != 6 {
			t.Errorf("%q: read as %+v", text, slot)
		}
	})
}
