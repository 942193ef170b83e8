package httpapi

import (
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"
)

const (
	// maxOrderBytes bounds what a buyer sends: an order has some 20 bytes.
	maxOrderBytes = 4 << 10
	// maxBodyBytes bounds what payment providers and operators send, who tell more.
	maxBodyBytes = 64 << 10

	fieldBody = "body"
)

// readJSON reads a request's body, which must be declared as JSON. It is empty where the request has none. Errors:
// those of readBody, *problem for another media type.
func readJSON(c echo.Context, limit int64) ([]byte, error) {
	body, err := readBody(c, limit)
	if err != nil || len(body) == 0 {
		return nil, err
	}
	return body, checkMediaType(c.Request().Header)
}

// readBody reads all of a request's body. Errors: *problem for one that exceeds the limit, fieldError for one that
// breaks off.
func readBody(c echo.Context, limit int64) ([]byte, error) {
	r := c.Request()
	if r.ContentLength > limit {
		return nil, tooLarge(c, limit)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	switch {
	case int64(len(body)) > limit:
		return nil, tooLarge(c, limit)
	case err != nil:
		return nil, fieldError{fieldBody, "it ended before it was whole"}
	}
	return body, nil
}

// tooLarge also gives up the connection: the rest of such a body is not worth reading.
func tooLarge(c echo.Context, limit int64) error {
	c.Response().Header()["Connection"] = closing
	return newProblem(codeTooLarge, "the body is larger than "+strconv.FormatInt(limit, 10)+" bytes")
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
	mediaType, params, err := mime.ParseMediaType(strings.Join(types, ",")) // two are as wrong as none
	if err != nil || mediaType != "application/json" {
		return newProblem(codeUnsupportedMediaType, "send the body with Content-Type: application/json")
	}
	if charset, ok := params["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return newProblem(codeUnsupportedMediaType, "JSON is sent in UTF-8")
	}
	return nil
}
