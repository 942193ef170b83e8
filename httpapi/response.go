package httpapi

import (
	"encoding/json"

	"github.com/labstack/echo/v4"
)

// Header names in the form that net/http keeps them, so that a map access is enough.
const (
	headerAllow        = "Allow"
	headerAuthenticate = "Www-Authenticate"
	headerCacheControl = "Cache-Control"
	headerContentType  = "Content-Type"
	headerETag         = "Etag"
	headerLocation     = "Location"
	headerRequestID    = "X-Request-Id"
	headerRetryAfter   = "Retry-After"
)

// Values that never change are shared by all answers: a header map contains slices, and a literal would be a new one
// each time. They are never written to.
var (
	jsonType    = []string{"application/json"}
	problemType = []string{"application/problem+json"}
	scriptType  = []string{"application/javascript"} // as Swagger UI's own
	htmlType    = []string{"text/html; charset=utf-8"}

	noStore      = []string{"no-store"}            // receipts and problems: true only at this moment, for this buyer
	privateCache = []string{"private, no-cache"}   // a buyer's order: may be kept by the buyer, must be revalidated
	briefly      = []string{"public, max-age=1"}   // sales: a shared cache in front saves a flood of page loads
	forMinutes   = []string{"public, max-age=300"} // documents that change with a release
)

// send writes a whole answer. A write fails only when the client is gone; the log and the metrics see that in the
// request's context, which is cancelled then. It returns nil, so that a handler can end with it.
func send(c echo.Context, status int, contentType []string, body []byte) error {
	c.Response().Header()[headerContentType] = contentType
	c.Response().WriteHeader(status)
	_, _ = c.Response().Write(body)
	return nil
}

func sendJSON(c echo.Context, status int, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return send(c, status, jsonType, body)
}
