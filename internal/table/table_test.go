package table_test

import (
	"math"
	"strings"
	"testing"

	"sluice/internal/table"
)

func TestColumnsAreAligned(t *testing.T) {
	t.Parallel()
	tb := table.New("sale", ">stock", "state")
	tb.Row("drop-1", 1000, "open")
	tb.Row("ü", int64(-1234567), "closed")
	var out strings.Builder
	if err := tb.Write(&out, "  "); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"  sale         stock  state\n" +
		"  drop-1       1,000  open\n" +
		"  ü       -1,234,567  closed\n"
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", 20_000: "20,000", 1 << 31: "2,147,483,648",
		math.MinInt64: "-9,223,372,036,854,775,808",
	} {
		if got := table.Number(n); got != want {
			t.Errorf("Number(%d): got %q, want %q", n, got, want)
		}
	}
}

// What strangers wrote into Redis must not steer the operator's terminal.
func TestControlCharactersAreEscaped(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain":      "plain",
		"\x1b[2Jbye": `"\x1b[2Jbye"`,
		"a\nb":       `"a\nb"`,
		"\xff":       `"\xff"`,
	} {
		if got := table.Clean(in); got != want {
			t.Errorf("Clean(%q): got %s, want %s", in, got, want)
		}
	}
	if got := len([]rune(table.Clean(strings.Repeat("x", 500)))); got != 160 {
		t.Errorf("a long cell has %d characters, want 160", got)
	}
}
