package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"sluice/httpapi/auth"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/idempotency"
)

// codeOf maps the pipeline's kinds of errors to codes. KindNotFound is not here: only the handler knows whether a sale
// or an order was looked for.
var codeOf = map[pipeline.Kind]problemCode{
	pipeline.KindInvalid:     codeInvalidRequest,
	pipeline.KindOverloaded:  codeOverloaded,
	pipeline.KindUnavailable: codeStoreUnavailable,
	pipeline.KindNotLoaded:   codeSaleNotLoaded,
	pipeline.KindConflict:    codeConflict,
}

// problemFor turns any error that a handler returned into a problem. Only texts written for clients are sent: a cause
// goes to the log.
func problemFor(c echo.Context, err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if field, ok := errors.AsType[fieldError](err); ok {
		return invalid(field)
	}
	if header, ok := errors.AsType[*auth.BadHeader](err); ok {
		return invalid(fieldError{header.Name, header.Detail})
	}
	if tooMany, ok := errors.AsType[*auth.TooManyAttempts](err); ok {
		p := newProblem(codeTooManyAttempts, tooMany.Error())
		p.retryAfter = time.Duration(tooMany.Seconds()) * time.Second
		p.hold = holdFor() // answers to one who guesses on many connections would cost more than the guesses
		return p
	}
	if refused, ok := errors.AsType[*auth.Refused](err); ok {
		p := newProblem(codeUnauthenticated, refused.Detail)
		p.challenge = refused.Challenge
		return p
	}
	if e, ok := errors.AsType[*pipeline.Error](err); ok && errors.Is(err, auth.ErrKeysUnavailable) {
		return newProblem(codeIdentityUnavailable, e.Message).because(err)
	}
	if e, ok := errors.AsType[*pipeline.Error](err); ok && errors.Is(err, admission.ErrDurabilityUnavailable) {
		return newProblem(codeNotDurable, e.Message).because(err)
	}
	if e, ok := errors.AsType[*pipeline.Error](err); ok && codeOf[e.Kind] != "" {
		p := newProblem(codeOf[e.Kind], e.Message).because(err)
		if idempotency.IsForNow(err) {
			p.retryAfter = time.Second
		}
		return p
	}
	if e, ok := errors.AsType[*echo.HTTPError](err); ok {
		return unrouted(c, e)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return newProblem(codeStoreUnavailable, "no answer in time").because(err)
	}
	return fault(err)
}

// unrouted answers a request for which echo has no handler.
func unrouted(c echo.Context, err *echo.HTTPError) *problem {
	switch err.Code {
	case http.StatusNotFound:
		return noRoute()
	case http.StatusMethodNotAllowed:
		return newProblem(codeMethodNotAllowed, "this path takes "+c.Response().Header().Get(headerAllow))
	default:
		return fault(err)
	}
}

func noRoute() *problem { return newProblem(codeNotFound, "nothing is served at this path") }

func fault(err error) *problem {
	return newProblem(codeInternal, "the server failed to handle the request").because(err)
}

// notFound gives a KindNotFound error the code of what was looked for, and returns other errors unchanged.
func notFound(err error, code problemCode) error {
	if e, ok := errors.AsType[*pipeline.Error](err); ok && e.Kind == pipeline.KindNotFound {
		return newProblem(code, e.Message)
	}
	return err
}
