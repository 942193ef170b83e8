// Package table prints what people compare line by line: aligned columns, numbers to the right.
package table

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxCell bounds the width of a cell: a name that a stranger put into Redis must not fill the screen.
const maxCell = 160

// Table is rows under headers. The zero value has no columns; use New.
type Table struct {
	headers []string
	right   []bool
	rows    [][]string
}

// New returns a table with these headers. A header that begins with '>' is of a column of numbers, set to the right.
func New(headers ...string) *Table {
	t := &Table{headers: make([]string, len(headers)), right: make([]bool, len(headers))}
	for i, h := range headers {
		t.headers[i], t.right[i] = strings.TrimPrefix(h, ">"), strings.HasPrefix(h, ">")
	}
	return t
}

// Row appends a row, one value per column. Integers get thousands' separators; what a terminal would obey (control
// characters) is shown escaped.
func (t *Table) Row(values ...any) {
	cells := make([]string, len(t.headers))
	for i, v := range values {
		cells[i] = Clean(text(v))
	}
	t.rows = append(t.rows, cells)
}

// Len is the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// Write prints the table, each line after the indent. A table without headers' texts has no header line.
func (t *Table) Write(w io.Writer, indent string) error {
	widths := make([]int, len(t.headers))
	lines := t.rows
	if strings.Join(t.headers, "") != "" {
		lines = append([][]string{t.headers}, t.rows...)
	}
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, t.line(indent, line, widths)); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) line(indent string, cells []string, widths []int) string {
	var b strings.Builder
	b.WriteString(indent)
	for i, cell := range cells {
		if i > 0 {
			b.WriteString("  ")
		}
		gap := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		if t.right[i] {
			b.WriteString(gap + cell)
		} else {
			b.WriteString(cell + gap)
		}
	}
	return strings.TrimRight(b.String(), " ")
}

func text(v any) string {
	switch v := v.(type) {
	case int:
		return Number(int64(v))
	case int64:
		return Number(v)
	case nil:
		return ""
	default:
		return fmt.Sprint(v)
	}
}

// Number writes an integer with thousands' separators: 20,000.
func Number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// Clean makes a text safe for a terminal and short enough for a cell.
func Clean(s string) string {
	s = Printable(s)
	if utf8.RuneCountInString(s) > maxCell {
		s = string([]rune(s)[:maxCell-1]) + "…"
	}
	return s
}

// Printable makes a text safe for a terminal, whatever its length.
func Printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) || !utf8.ValidString(s) {
		return strconv.Quote(s)
	}
	return s
}
