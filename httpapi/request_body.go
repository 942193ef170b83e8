package httpapi

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
)

const (
	maxBodyBytes = 64 << 10 // far above any order; below it a body costs little to refuse

	// The buffers that are kept for reuse. A usual body fits the smaller size; a larger one is not kept, so that
	// a flood of large bodies does not pin memory.
	usualBodyBytes = 512
	keptBodyBytes  = 4 << 10
)

var bodies = sync.Pool{New: func() any { b := make([]byte, 0, usualBodyBytes); return &b }}

// readQuantity reads the body of an order. No body means one unit. Errors: fieldError for what is in the body, *problem
// for a body that is too large or no JSON by its headers.
func readQuantity(w http.ResponseWriter, r *http.Request) (int, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return 1, nil
	}
	if r.ContentLength > maxBodyBytes {
		return 0, tooLarge(w)
	}
	buffer := bodies.Get().(*[]byte)
	body, err := readBody((*buffer)[:0], r.Body)
	defer func() {
		if cap(body) <= keptBodyBytes {
			*buffer = body
			bodies.Put(buffer)
		}
	}()
	switch {
	case errors.Is(err, errBodyTooLarge):
		return 0, tooLarge(w)
	case err != nil:
		return 0, fieldError{fieldBody, "it ended before it was whole"}
	case len(body) == 0:
		return 1, nil
	}
	if err := checkMediaType(r.Header); err != nil {
		return 0, err
	}
	return decodeQuantity(body)
}

var errBodyTooLarge = errors.New("body too large")

// readBody reads all of a body into b, at most maxBodyBytes.
func readBody(b []byte, body io.Reader) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case len(b) > maxBodyBytes:
			return b, errBodyTooLarge
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			return b, err
		}
	}
}

// tooLarge also gives up the connection: the rest of such a body is not worth reading.
func tooLarge(w http.ResponseWriter) *problem {
	w.Header()["Connection"] = []string{"close"}
	return newProblem(codeTooLarge, "the body is larger than 65536 bytes")
}

// checkMediaType accepts JSON in UTF-8, uncompressed. The usual spelling is let through without parsing.
func checkMediaType(h http.Header) error {
	types, encodings := h[headerContentType], h["Content-Encoding"]
	if len(encodings) > 0 && !strings.EqualFold(encodings[0], "identity") {
		return newProblem(codeUnsupportedMediaType, "the body must not be compressed")
	}
	if len(types) == 1 && types[0] == "application/json" {
		return nil
	}
	const detail = "send the body with Content-Type: application/json"
	if len(types) != 1 {
		return newProblem(codeUnsupportedMediaType, detail)
	}
	mediaType, params, err := mime.ParseMediaType(types[0])
	if err != nil || mediaType != "application/json" {
		return newProblem(codeUnsupportedMediaType, detail)
	}
	if charset, ok := params["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return newProblem(codeUnsupportedMediaType, "JSON is sent in UTF-8")
	}
	return nil
}
