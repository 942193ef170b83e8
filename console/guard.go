package console

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/operator"
)

const (
	// maxFormBytes bounds the body of a form: a reason, a note and a title, all escaped.
	maxFormBytes = 32 << 10
	// pageTimeout bounds what one page asks of the stores, auditTimeout a page that audits a sale. Both are below the
	// write timeout of the server.
	pageTimeout, auditTimeout = 8 * time.Second, 25 * time.Second
)

// request is one request of somebody who is known, unless the route is open.
type request struct {
	*http.Request
	c       *console
	w       http.ResponseWriter
	route   string
	who     operator.Identity
	session session
	status  int // that was answered; 0: nothing was yet
}

// headers keep a browser from running, framing or keeping anything but what we serve.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), geolocation=(), microphone=()",
	"Cache-Control":                "no-store",
}

// guard lets a request through to its page: it comes from our own pages, its session counts, its role allows it, and a
// form has the session's token.
func (c *console) guard(rt route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxFormBytes)
		q := &request{Request: r, c: c, w: w, route: rt.pattern}
		if !rt.lasts {
			ctx, cancel := context.WithTimeout(r.Context(), rt.within())
			defer cancel()
			q.Request = r.WithContext(ctx)
		}
		err := q.protect(rt)
		if err != nil {
			q.refuse(err)
		}
		q.log(time.Since(began), err)
	}
}

// protect turns a panic into an error with a stack.
func (q *request) protect(rt route) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	if err := q.c.origins.Check(q.Request); err != nil {
		return &refusal{http.StatusForbidden, "Not from here", "this form was not sent from a page of this console"}
	}
	var tooLong *http.MaxBytesError
	if err := q.ParseForm(); errors.As(err, &tooLong) {
		return &refusal{http.StatusRequestEntityTooLarge, "Too long", "nothing that is asked for here is that long"}
	} else if err != nil {
		return &refusal{http.StatusBadRequest, "That can't be meant", "the form can't be read"}
	}
	if rt.role == open {
		return rt.handle(q)
	}
	if q.who, q.session, err = q.c.identify(q.Request); err != nil {
		return q.askToSignIn(rt, err)
	}
	if !q.who.Role.Allows(rt.role) {
		return &refusal{http.StatusForbidden, "Not with this role", fmt.Sprintf(
			"this needs the role %s; the token of %s has the role %s", rt.role, q.who.Name, q.who.Role)}
	}
	if q.Method == http.MethodPost {
		given, want := q.PostFormValue("form_token"), q.c.sessions.formToken(q.session)
		if subtle.ConstantTimeCompare([]byte(given), []byte(want)) != 1 {
			return &refusal{
				http.StatusForbidden, "Not from here",
				"this form is not of your session: go back, reload the page, and send it again; nothing was changed",
			}
		}
	}
	return rt.handle(q)
}

// identify returns who a request comes from. Errors: errNoSession; those of the keyring.
func (c *console) identify(r *http.Request) (operator.Identity, session, error) {
	one, err := c.sessions.of(r)
	if err != nil {
		return operator.Identity{}, session{}, err
	}
	who, err := c.Operators.Continue(r, operator.Session{TokenID: one.TokenID, Print: one.Print})
	return who, one, err
}

func (q *request) askToSignIn(rt route, why error) error {
	if pipeline.KindOf(why) == pipeline.KindUnavailable {
		return why
	}
	if !errors.Is(why, errNoSession) { // its token counts no more
		http.SetCookie(q.w, cookie(q.Request, "", -1))
	}
	if rt.lasts {
		return &refusal{http.StatusUnauthorized, "Signed out", "sign in again"}
	}
	to := signInPath
	if q.Method == http.MethodGet {
		to += "?next=" + url.QueryEscape(q.URL.RequestURI())
	}
	return q.redirect(to)
}

// refusal is an answer that is no page.
type refusal struct {
	status int
	title  string
	detail string
}

func (r *refusal) Error() string { return r.detail }

// statusOf is what an error of a part means to a browser.
var statusOf = map[pipeline.Kind]refusal{
	pipeline.KindInvalid:     {http.StatusBadRequest, "That can't be meant", ""},
	pipeline.KindNotFound:    {http.StatusNotFound, "Not found", ""},
	pipeline.KindConflict:    {http.StatusConflict, "Not possible now", ""},
	pipeline.KindOverloaded:  {http.StatusServiceUnavailable, "Too much at once", ""},
	pipeline.KindUnavailable: {http.StatusServiceUnavailable, "A store does not answer", ""},
	pipeline.KindNotLoaded:   {http.StatusServiceUnavailable, "Not in Redis", ""},
}

// refuse answers with what went wrong. Causes go to the log, and to nobody else.
func (q *request) refuse(err error) {
	if q.status != 0 {
		return // a part of the answer is sent
	}
	answer := refusal{http.StatusInternalServerError, "That went wrong", "the server failed; its log says why"}
	var known *refusal
	var e *pipeline.Error
	switch {
	case errors.As(err, &known):
		answer = *known
	case errors.As(err, &e) && statusOf[e.Kind].status != 0:
		answer = statusOf[e.Kind]
		answer.detail = e.Message
	case errors.Is(err, context.DeadlineExceeded):
		answer = refusal{http.StatusServiceUnavailable, "A store does not answer", "it did not answer in time"}
	}
	if err := q.render(answer.status, "error", page{Title: answer.title, Body: sentence(answer.detail)}); err != nil {
		http.Error(q.w, answer.title, answer.status)
	}
}

// log has nothing of a query, a form or a cookie.
func (q *request) log(took time.Duration, err error) {
	level, attrs := slog.LevelDebug, []slog.Attr{
		slog.String("method", q.Method), slog.String("route", q.route), slog.Int("status", q.status),
		slog.Int64("us", took.Microseconds()),
	}
	if q.Method == http.MethodPost {
		level = slog.LevelInfo
	}
	if q.who.Name != "" {
		attrs = append(attrs, slog.String("actor", q.who.Actor()))
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
		if cause := errors.Unwrap(err); cause != nil {
			attrs = append(attrs, slog.String("cause", cause.Error()))
		}
	}
	if q.status >= http.StatusInternalServerError {
		level = slog.LevelWarn
	}
	q.c.Log.LogAttrs(q.Context(), level, "console", attrs...)
}
