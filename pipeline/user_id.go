package pipeline

import (
	"unicode"
	"unicode/utf8"
)

// ValidateUserID returns a KindInvalid error when an id can't name a buyer: empty, over MaxUserIDBytes, not UTF-8,
// or with a brace, a space or an unprintable character (they would corrupt keys, logs and terminals).
func ValidateUserID(id string) error {
	switch {
	case id == "":
		return Errorf(KindInvalid, "user id is empty")
	case len(id) > MaxUserIDBytes:
		return Errorf(KindInvalid, "user id has %d bytes; at most %d are allowed", len(id), MaxUserIDBytes)
	case !utf8.ValidString(id):
		return Errorf(KindInvalid, "user id is not valid UTF-8")
	}
	for _, r := range id {
		if r == '{' || r == '}' || unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return Errorf(KindInvalid, "user id contains %q; braces, spaces and control characters are not allowed", r)
		}
	}
	return nil
}
