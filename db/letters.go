package db

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"sluice/pipeline"
)

const (
	// maxLetterValue cuts a single field of a letter: what a stranger wrote into the stream may have any size.
	maxLetterValue = 64 << 10 // bytes
	// maxLetterText cuts the texts of a letter.
	maxLetterText = 4 << 10 // bytes
)

// SaveDeadLetter keeps a stream entry for an operator. It reports whether the letter is new: a second write of the same
// entry changes nothing.
func (s *Store) SaveDeadLetter(ctx context.Context, letter pipeline.DeadLetter) (bool, error) {
	payload, err := json.Marshal(letterFields(letter.Payload))
	if err != nil {
		return false, pipeline.Wrap(pipeline.KindData, err, "dead letter: payload")
	}
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	tag, err := s.pool.Exec(ctx, letterQuery,
		letter.Partition, letter.EntryID, letterText(letter.SaleID), letterText(letter.OrderID), string(payload),
		letter.Reason, letterText(letter.Error), letter.Deliveries)
	return tag.RowsAffected() == 1, wrap(err, "dead letter")
}

// letterFields writes an entry's fields as JSON that jsonb accepts. A text stays itself. What is not text (bytes that are
// not UTF-8, or a NUL, which jsonb can't hold) becomes {"base64": …}; what is too long, {"base64": …, "bytes": its whole
// length}. A name that is not text is written as "base64:…".
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
