package httpapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"sluice/httpapi/limits"
)

// fieldError says which part of a request breaks which rule. Field is the name of a body field, a header or a query
// parameter; "body" is the body as a whole.
type fieldError struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

func (e fieldError) Error() string { return e.Field + ": " + e.Detail }

// problem is an error answer (RFC 9457). Handlers return one as an error; the envelope completes and writes it.
type problem struct {
	Type        string       `json:"type"`
	Code        problemCode  `json:"code"`
	Title       string       `json:"title"`
	Status      int          `json:"status"`
	Detail      string       `json:"detail"`
	Instance    string       `json:"instance,omitempty"`
	RequestID   string       `json:"request_id"`
	Errors      []fieldError `json:"errors,omitempty"`
	OrderID     string       `json:"order_id,omitempty"`
	OrderStatus string       `json:"order_status,omitempty"`
	OpensAt     string       `json:"opens_at,omitempty"`
	NotBefore   string       `json:"not_before,omitempty"` // of an entry ticket
	// RetryAfterMs is how long it is until then: Retry-After has whole seconds only, and a clock may be wrong.
	RetryAfterMs int64 `json:"retry_after_ms,omitempty"`
	MaxQuantity  int   `json:"max_quantity,omitempty"`
	Waitlist     bool  `json:"waitlist,omitempty"` // of a sold-out sale: one may wait

	location  string // header Location
	challenge string // header WWW-Authenticate
	cause     error  // for the log, never for the client

	retryAfter time.Duration   // header Retry-After, where it is not that of the code
	limit      *limits.Refusal // that was reached; nil: none
	hold       time.Duration   // how long the answer is held back
}

func newProblem(code problemCode, detail string) *problem {
	d := problemOf[code]
	return &problem{Type: "/problems/" + string(code), Code: code, Title: d.Title, Status: d.Status, Detail: detail}
}

// invalid is the answer to fields that break rules.
func invalid(errs ...fieldError) *problem {
	detail := "one field breaks a rule"
	if len(errs) != 1 {
		detail = strconv.Itoa(len(errs)) + " fields break a rule"
	}
	p := newProblem(codeInvalidRequest, detail)
	if len(errs) == 1 {
		p.Detail = errs[0].Error()
	}
	p.Errors = errs
	return p
}

func (p *problem) Error() string { return string(p.Code) + ": " + p.Detail }

func (p *problem) Unwrap() error { return p.cause }

// because keeps what the log should know.
func (p *problem) because(cause error) *problem {
	p.cause = cause
	return p
}

// write sends the problem. What belongs to the request (path, id) is filled in here, in one place.
func (p *problem) write(c echo.Context) error {
	h := c.Response().Header()
	p.Instance, p.RequestID = c.Request().URL.EscapedPath(), requestID(c)
	if wait := cmp.Or(p.retryAfter, problemOf[p.Code].RetryAfter); wait > 0 {
		h[headerRetryAfter] = []string{strconv.Itoa(int(wait.Seconds()))}
	}
	if p.limit != nil {
		limitHeaders(h, p.limit)
	}
	if p.location != "" {
		h[headerLocation] = []string{p.location}
	}
	if p.challenge != "" {
		h[headerAuthenticate] = []string{p.challenge}
	}
	h[headerCacheControl] = noStore
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return send(c, p.Status, problemType, body)
}

// fieldErrors collects the fieldErrors among errs. A *problem among them wins over all: it is about the whole request.
func fieldErrors(errs ...error) []fieldError {
	var wrong []fieldError
	for _, err := range errs {
		if p, ok := errors.AsType[*problem](err); ok && p != nil {
			return nil
		}
		if field, ok := errors.AsType[fieldError](err); ok {
			wrong = append(wrong, field)
		}
	}
	return wrong
}
