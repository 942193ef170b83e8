package httpapi

import (
	"fmt"
	"net/http"
	"strings"

	"sluice/pipeline"
)

const idempotencyHeader = "Idempotency-Key"

// idempotencyKey returns the request's key, or "" when it has none. A key is 1 to 255 printable ASCII characters; a
// header that is there but can't be one is a fieldError, because the buyer relies on it.
func idempotencyKey(h http.Header) (string, error) {
	values := h[idempotencyHeader]
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	switch {
	case len(values) > 1:
		return "", fieldError{idempotencyHeader, "send it once"}
	case key == "":
		return "", fieldError{idempotencyHeader, "it is empty: send 1 to 255 printable characters, or leave it out"}
	case len(key) > pipeline.MaxIdempotencyKeyBytes:
		return "", fieldError{
			idempotencyHeader,
			fmt.Sprintf("it has %d bytes; at most %d are allowed", len(key), pipeline.MaxIdempotencyKeyBytes),
		}
	case strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }):
		return "", fieldError{idempotencyHeader, "only printable ASCII characters are allowed"}
	}
	return key, nil
}
