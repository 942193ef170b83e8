package httpapi

import (
	"crypto/rand"

	"github.com/labstack/echo/v4"
)

// maxRequestIDBytes bounds an X-Request-Id of a client: it fits a UUID, a ULID or a trace id, and a log line.
const maxRequestIDBytes = 64

// assignRequestID takes the client's id, so that the logs of both sides can be compared, or makes one. It is kept in
// the header of the answer.
func assignRequestID(c echo.Context) {
	h := c.Response().Header()
	if given := c.Request().Header[headerRequestID]; len(given) == 1 && saneRequestID(given[0]) {
		h[headerRequestID] = given[:1:1]
		return
	}
	h[headerRequestID] = []string{rand.Text()}
}

func requestID(c echo.Context) string {
	if id := c.Response().Header()[headerRequestID]; len(id) == 1 {
		return id[0]
	}
	return ""
}

// saneRequestID refuses ids that could forge a log line or a header, or break a search by id.
func saneRequestID(id string) bool {
	if id == "" || len(id) > maxRequestIDBytes {
		return false
	}
	for _, b := range []byte(id) {
		switch {
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9', b == '-', b == '_', b == '.':
		default:
			return false
		}
	}
	return true
}
