package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/labstack/echo/v4"

	"sluice/httpapi/limits"
)

// clientGone is the status under which a request is logged and counted whose client left before the answer: it is no
// fault of the server.
const clientGone = 499

// middleware is what every request of a side passes through, whatever its handler.
type middleware struct {
	log       *slog.Logger
	durations durations
	timeout   time.Duration // of the request's work in its stores
	logOrders bool          // see Deps.LogOrders
	guard     *guard        // nil: nothing is limited
	sampler   logSampler    // of the log
	addresses *limits.Addresses

	// waits reports which requests are meant to last longer than timeout, and bound themselves; nil: none.
	waits func(echo.Context) bool
}

// wrap is one function rather than a chain of middlewares, because echo builds the chain again for each request.
func (v *middleware) wrap(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		began := time.Now()
		assignRequestID(c)
		secure(c.Response().Header())

		request := c.Request()
		if len(request.TransferEncoding) > 0 {
			// A proxy in front may have taken what follows for a part of this request's body, by a Content-Length that net/http
			// ignores beside it (RFC 9112, section 6.1): nothing more is read from this connection.
			c.Response().Header()["Connection"] = closing
		}
		if v.waits == nil || !v.waits(c) {
			ctx, cancel := context.WithTimeout(request.Context(), v.timeout)
			defer cancel()
			c.SetRequest(request.WithContext(ctx))
		}

		var refused *problem
		if err := v.protect(c, next); err != nil {
			refused = v.refuse(c, err)
		}
		v.observe(c, request, time.Since(began), refused)
		return nil
	}
}

// handle lets a request through to its handler, unless its client has sent too many.
func (v *middleware) handle(c echo.Context, next echo.HandlerFunc) error {
	if v.guard != nil {
		if err := v.guard.takeClient(c); err != nil {
			return err
		}
	}
	return next(c)
}

// protect turns a panic into an error with a stack, so that one broken request harms no other.
func (v *middleware) protect(c echo.Context, next echo.HandlerFunc) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == http.ErrAbortHandler { //nolint:errorlint // a panic value, compared as net/http does
			panic(p)
		}
		err = &panicked{p, debug.Stack()}
	}()
	return v.handle(c, next)
}

// panicked is the error of a request whose handler panicked.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// refuse answers with the problem for an error, and returns it.
func (v *middleware) refuse(c echo.Context, err error) *problem {
	if c.Response().Committed {
		// Part of an answer is sent: only a broken connection can show the client that it is incomplete.
		v.log.Error("answer broken off", "request_id", requestID(c), "error", err)
		panic(http.ErrAbortHandler)
	}
	p := problemFor(c, err)
	pause(c.Request().Context(), p.hold)
	_ = p.write(c) // only a problem that is no JSON could fail, and its strings and numbers always are
	return p
}

// secure sets the headers that keep a browser from doing more with an answer than showing it, and caches from keeping
// it; a handler whose answer may be kept says so itself.
func secure(h http.Header) {
	h[headerCacheControl] = noStore
	h["X-Content-Type-Options"] = noSniff
	h["Content-Security-Policy"] = showNothing
	h["Referrer-Policy"] = noReferrer
}

var (
	noSniff     = []string{"nosniff"}
	showNothing = []string{"default-src 'none'; frame-ancestors 'none'"}
	noReferrer  = []string{"no-referrer"}
)

// observe counts and logs an answer. The log contains no user id and nothing of a body: of a problem it has the code,
// and the cause where there is one, but not the detail, which quotes the client.
func (v *middleware) observe(c echo.Context, request *http.Request, took time.Duration, refused *problem) {
	status := c.Response().Status
	if request.Context().Err() != nil {
		status = clientGone
	}
	v.durations.observe(c.Path(), request.Method, status, took)

	ctx, level := request.Context(), v.level(c.Path(), request.Method, status)
	if !v.log.Enabled(ctx, level) {
		return
	}
	left := 0
	if status != http.StatusInternalServerError && !v.logOrders { // what is wrong here is always logged
		var logged bool
		if logged, left = v.sampler.take(c.Path(), status, time.Now()); !logged {
			return
		}
	}
	attrs := []slog.Attr{
		slog.String("method", request.Method),
		slog.String("route", routeOf(c.Path())),
		slog.Int("status", status),
		slog.Int64("us", took.Microseconds()),
		slog.String("request_id", requestID(c)),
	}
	attrs = append(attrs, slog.String("client", v.addresses.Of(request).String()))
	if left > 0 {
		attrs = append(attrs, slog.Int("unlogged", left))
	}
	if refused != nil {
		attrs = append(attrs, slog.String("code", string(refused.Code)))
		if refused.cause != nil {
			attrs = append(attrs, slog.String("error", refused.cause.Error()))
			if broken, ok := errors.AsType[*panicked](refused.cause); ok {
				attrs = append(attrs, slog.String("stack", string(broken.stack)))
			}
		}
	}
	v.log.LogAttrs(ctx, level, "request", attrs...)
}

// level is the log level of an answer. The usual answers to orders are at debug unless asked for; the metrics count
// them all.
func (v *middleware) level(path, method string, status int) slog.Level {
	switch {
	case status == http.StatusInternalServerError:
		return slog.LevelError
	case path == ordersRoute && method == http.MethodPost && !v.logOrders && usualForOrders(status):
		return slog.LevelDebug
	default:
		return slog.LevelInfo
	}
}

func usualForOrders(status int) bool {
	switch status {
	case http.StatusAccepted, http.StatusForbidden, http.StatusConflict, http.StatusServiceUnavailable, clientGone:
		return true
	default:
		return false
	}
}
