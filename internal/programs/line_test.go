package programs

import (
	"strings"
	"testing"
	"time"
)

func TestLines(t *testing.T) {
	t.Parallel()
	var lines []Line
	p := newProcess("worker-1", func(l Line) { lines = append(lines, l) })
	text := `{"time":"2026-11-21T09:49:54.708Z","level":"INFO","msg":"worker joined","partitions":16,"worker":"w-1","to":"two words"}` + "\n" +
		"panic: oh no\n" + `{"level":"WARN","msg":"half`
	for _, b := range []byte(text) { // however the pipe cuts it
		if _, err := p.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if len(lines) != 2 {
		t.Fatalf("got %d lines, want the two that are whole: %+v", len(lines), lines)
	}
	if got, want := lines[0].Text(), `worker joined partitions=16 to="two words"`; got != want ||
		lines[0].Level != "INFO" || lines[0].Serious() {
		t.Errorf("got %q, want %q", got, want)
	}
	if want := time.Date(2026, 11, 21, 9, 49, 54, 708e6, time.UTC); !lines[0].Time.Equal(want) {
		t.Errorf("got %s, want %s", lines[0].Time, want)
	}
	if got := lines[1]; got.Message != "panic: oh no" || got.Level != "" || !got.Serious() {
		t.Errorf("got %+v, want the crash as it stands", got)
	}
	if p.Consumer() != "w-1" {
		t.Errorf("got the consumer %q, want w-1", p.Consumer())
	}
	select {
	case <-p.ready:
	default:
		t.Error("a worker that has joined is not ready")
	}
}

// A process that writes without end of line must not fill our memory.
func TestEndlessLineIsCut(t *testing.T) {
	t.Parallel()
	var lines []Line
	p := newProcess("api", func(l Line) { lines = append(lines, l) })
	for range 10 {
		if _, err := p.Write([]byte(strings.Repeat("x", maxLine/2))); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.partial) > maxLine || len(lines) < 4 {
		t.Errorf("%d bytes are kept and %d lines of 5 full ones", len(p.partial), len(lines))
	}
}
