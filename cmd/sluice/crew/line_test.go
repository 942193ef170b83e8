package crew

import (
	"strings"
	"testing"
	"time"
)

func TestLines(t *testing.T) {
	t.Parallel()
	var heard []Line
	m := newMember("worker-1", func(l Line) { heard = append(heard, l) })
	text := `{"time":"2026-11-21T09:49:54.708Z","level":"INFO","msg":"worker joined","partitions":16,"worker":"w-1","to":"two words"}` + "\n" +
		"panic: oh no\n" + `{"level":"WARN","msg":"half`
	for _, b := range []byte(text) { // however the pipe cuts it
		if _, err := m.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if len(heard) != 2 {
		t.Fatalf("got %d lines, want the two that are whole: %+v", len(heard), heard)
	}
	if got, want := heard[0].Text(), `worker joined partitions=16 to="two words"`; got != want || heard[0].Level != "INFO" || heard[0].Serious() {
		t.Errorf("got %q, want %q", got, want)
	}
	if want := time.Date(2026, 11, 21, 9, 49, 54, 708e6, time.UTC); !heard[0].Time.Equal(want) {
		t.Errorf("got %s, want %s", heard[0].Time, want)
	}
	if got := heard[1]; got.Message != "panic: oh no" || got.Level != "" || !got.Serious() {
		t.Errorf("got %+v, want the crash as it stands", got)
	}
	if m.Consumer() != "w-1" {
		t.Errorf("got the consumer %q, want w-1", m.Consumer())
	}
	select {
	case <-m.ready:
	default:
		t.Error("a worker that has joined is not ready")
	}
}

// A member that writes without end of line must not fill our memory.
func TestEndlessLineIsCut(t *testing.T) {
	t.Parallel()
	var heard []Line
	m := newMember("api", func(l Line) { heard = append(heard, l) })
	for range 10 {
		if _, err := m.Write([]byte(strings.Repeat("x", maxLine/2))); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.partial) > maxLine || len(heard) < 4 {
		t.Errorf("%d bytes are kept and %d lines heard of 5 full ones", len(m.partial), len(heard))
	}
}
