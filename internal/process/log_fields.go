package process

import (
	"fmt"
	"log/slog"
	"strconv"
	"unicode/utf8"
)

const (
	// maxFieldBytes bounds a field of a line of the log, as it is written: a client's header, or an answer of somebody
	// else's server, must fill neither a disk nor what collects the log.
	maxFieldBytes = 1 << 10
	// maxStackBytes is for the stack of a panic, in which nothing is a client's.
	maxStackBytes = 16 << 10
	stackField    = "stack"
	// escapedBytes is what a character may need that no handler writes as it is.
	escapedBytes = len(`\U0010ffff`)
)

// boundField shortens a field that is too long. It sees every field of every logger of the program, in groups and of
// With as well.
func boundField(_ []string, a slog.Attr) slog.Attr {
	most := maxFieldBytes
	if a.Key == stackField {
		most = maxStackBytes
	}
	switch a.Value.Kind() {
	case slog.KindString:
		if text := a.Value.String(); len(text)*escapedBytes > most { // most are far shorter
			a.Value = slog.StringValue(clip(text, most))
		}
	case slog.KindAny:
		a.Value = boundAny(a.Value, most)
	default: // a number, a time, a group, whose fields come by themselves
	}
	return a
}

// boundAny leaves what is short as it is: a handler may have a form of its own for it.
func boundAny(v slog.Value, most int) slog.Value {
	var text string
	switch value := v.Any().(type) {
	case *slog.Source, slog.Level: // our own
		return v
	case error:
		text = value.Error()
	default:
		text = fmt.Sprintf("%+v", value)
	}
	if clipped := clip(text, most); clipped != text {
		return slog.StringValue(clipped)
	}
	return v
}

// clip returns a text of which at most so many bytes are written: all of it, or its beginning and how long it is.
func clip(text string, most int) string {
	const note = 32 // bytes of what is said at the end
	fits, written := 0, 0
	for at, r := range text {
		if written <= most-note {
			fits = at
		}
		if written += writtenBytes(r); written > most {
			return fmt.Sprintf("%s… (%d bytes)", text[:fits], len(text))
		}
	}
	return text
}

// writtenBytes is how many bytes of a line a character needs at most, in both formats.
func writtenBytes(r rune) int {
	switch {
	case r == utf8.RuneError || !strconv.IsPrint(r):
		return escapedBytes
	case r == '"' || r == '\\':
		return 2
	default:
		return utf8.RuneLen(r)
	}
}
