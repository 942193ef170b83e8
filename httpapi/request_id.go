package httpapi

import (
	"crypto/rand"
	"regexp"

	"github.com/labstack/echo/v4"
)

// assignRequestID takes the client's id, so that the logs of both sides can be compared, or makes one. It is kept in
// the header of the answer.
func assignRequestID(c echo.Context) {
	h := c.Response().Header()
	if given := c.Request().Header[headerRequestID]; len(given) == 1 && saneRequestID.MatchString(given[0]) {
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

// saneRequestID keeps out ids that could forge a log line or a header, or break a search by id. 64 bytes fit a UUID, a
// ULID or a trace id, and a log line.
var saneRequestID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
