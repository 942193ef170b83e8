package httpapi

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"

	"sluice/httpapi/auth"
)

// preflightLife is how long a browser may remember what a page may do.
const preflightLife = 10 * time.Minute

// crossOrigin lets pages of some origins call this API from a browser: with credentials, since each origin is named. To
// all others it says nothing, which a browser takes for no.
func crossOrigin(origins []string) echo.MiddlewareFunc {
	return echomiddleware.CORSWithConfig(echomiddleware.CORSConfig{
		AllowOrigins: origins,
		AllowMethods: []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete},
		AllowHeaders: []string{
			"Authorization", headerContentType, headerEntryTicket, "Idempotency-Key", "If-None-Match", "Last-Event-ID", "Prefer", auth.UserHeader,
			headerRequestID,
		},
		ExposeHeaders: []string{
			headerETag, headerLocation, "Preference-Applied", "RateLimit", "RateLimit-Policy", headerRetryAfter,
			headerAuthenticate, headerRequestID,
		},
		AllowCredentials: true,
		MaxAge:           int(preflightLife.Seconds()),
	})
}
