package erasure

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// shortID is the most bytes of an id that is not looked for in free text: 7 or ab stand there for something else.
const shortID = 3

// userKeys are the names of members that hold a buyer's id: in documents, and in the fields of a stream entry.
var userKeys = map[string]bool{"user_id": true, "user": true, "u": true}

// Replace replaces an id in a column's value, and reports whether it was there.
func Replace(kind Kind, value, id, pseudonym string) (string, bool) {
	if kind == Text {
		return replaceWords(value, id, pseudonym)
	}
	var document any
	decoder := json.NewDecoder(strings.NewReader(value))
	decoder.UseNumber()
	if err := decoder.Decode(&document); err != nil {
		return replaceWords(value, id, pseudonym)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) { // text that begins like a document
		return replaceWords(value, id, pseudonym)
	}
	w := walk{id: id, pseudonym: pseudonym}
	document = w.value("", document)
	if !w.found {
		return value, false
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(document); err != nil { // it was decoded from JSON
		return value, false
	}
	return strings.TrimSuffix(out.String(), "\n"), true
}

// walk replaces an id in a document.
type walk struct {
	id, pseudonym string
	found         bool
}

func (w *walk) value(name string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			v[key] = w.value(key, member)
		}
	case []any:
		for i := range v {
			v[i] = w.value(name, v[i])
		}
	case string:
		return w.text(name, v)
	}
	return v
}

func (w *walk) text(name, text string) string {
	if text == w.id && (userKeys[name] || len(w.id) > shortID) {
		w.found = true
		return w.pseudonym
	}
	// What a command printed may be a document itself.
	if inner := strings.TrimSpace(text); strings.HasPrefix(inner, "{") || strings.HasPrefix(inner, "[") {
		if replaced, found := Replace(JSON, inner, w.id, w.pseudonym); found {
			w.found = true
			return strings.Replace(text, inner, replaced, 1)
		}
	}
	replaced, found := replaceWords(text, w.id, w.pseudonym)
	w.found = w.found || found
	return replaced
}

// replaceWords replaces an id where it stands as a word of its own.
func replaceWords(text, id, pseudonym string) (string, bool) {
	if len(id) <= shortID || !strings.Contains(text, id) {
		return text, false
	}
	var out strings.Builder
	found := false
	for at := 0; ; {
		next := strings.Index(text[at:], id)
		if next < 0 {
			out.WriteString(text[at:])
			return out.String(), found
		}
		start, end := at+next, at+next+len(id)
		before, _ := utf8.DecodeLastRuneInString(text[:start])
		after, _ := utf8.DecodeRuneInString(text[end:])
		out.WriteString(text[at:start])
		if (start > 0 && inWord(before)) || (end < len(text) && inWord(after)) {
			out.WriteString(id)
		} else {
			out.WriteString(pseudonym)
			found = true
		}
		at = end
	}
}

// inWord reports whether a rune beside an id makes it a part of a longer one.
func inWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-@+", r)
}
