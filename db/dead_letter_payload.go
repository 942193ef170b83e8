package db

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// maxLetterValue cuts a single field of a letter: what some other program wrote into the stream may have any size.
	maxLetterValue = 64 << 10 // bytes
	// maxLetterText cuts the texts of a letter.
	maxLetterText = 4 << 10 // bytes
)

// letterFields writes an entry's fields as JSON that jsonb accepts. A text stays itself. What is not text (bytes that
// are not UTF-8, or a NUL, which jsonb can't hold) becomes {"base64": …}; what is too long, {"base64": …, "bytes": its
// whole length}. A name that is not text is written as "base64:…".
func letterFields(fields map[string]any) map[string]any {
	written := make(map[string]any, len(fields))
	for name, value := range fields {
		written[letterName(name)] = letterValue(fmt.Sprint(value))
	}
	return written
}

const base64Prefix = "base64:"

func letterName(name string) string {
	if isText(name) && len(name) <= maxLetterText && !strings.HasPrefix(name, base64Prefix) {
		return name
	}
	encoded, _ := json.Marshal([]byte(name[:min(len(name), maxLetterText)])) // bytes always can be
	return base64Prefix + strings.Trim(string(encoded), `"`)
}

func letterValue(value string) any {
	switch {
	case len(value) > maxLetterValue:
		return map[string]any{"base64": []byte(value[:maxLetterValue]), "bytes": len(value)}
	case !isText(value):
		return map[string]any{"base64": []byte(value)}
	default:
		return value
	}
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// letterText makes any text one that Postgres stores.
func letterText(s string) string {
	s = strings.ReplaceAll(s[:min(len(s), maxLetterText)], "\x00", "\uFFFD")
	return strings.ToValidUTF8(s, "\uFFFD")
}
