package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"sluice/pipeline"
)

// codeOf is the one place where the pipeline's kinds become codes. KindNotFound is not here: only the handler knows
// whether a sale or an order was looked for.
var codeOf = map[pipeline.Kind]Code{
	pipeline.KindInvalid:     CodeInvalidRequest,
	pipeline.KindOverloaded:  CodeOverloaded,
	pipeline.KindUnavailable: CodeStoreUnavailable,
	pipeline.KindNotLoaded:   CodeSaleNotLoaded,
	pipeline.KindConflict:    CodeConflict,
}

// problemFor turns whatever a handler returned into an answer. Only texts written for clients get out: a cause goes to
// the log.
func problemFor(c echo.Context, err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if field, ok := errors.AsType[FieldError](err); ok {
		return invalid(field)
	}
	if anonymous, ok := errors.AsType[*Unauthenticated](err); ok {
		p := newProblem(CodeUnauthenticated, anonymous.Detail)
		p.challenge = anonymous.Challenge
		return p
	}
	if e, ok := errors.AsType[*pipeline.Error](err); ok && codeOf[e.Kind] != "" {
		return newProblem(codeOf[e.Kind], e.Message).because(err)
	}
	if e, ok := errors.AsType[*echo.HTTPError](err); ok {
		return unrouted(c, e)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return newProblem(CodeStoreUnavailable, "no answer in time").because(err)
	}
	return fault(err)
}

// unrouted answers a request for which echo has no handler.
func unrouted(c echo.Context, err *echo.HTTPError) *problem {
	switch err.Code {
	case http.StatusNotFound:
		return noRoute()
	case http.StatusMethodNotAllowed:
		return newProblem(CodeMethodNotAllowed, "this path takes "+c.Response().Header().Get(headerAllow))
	default:
		return fault(err)
	}
}

func noRoute() *problem { return newProblem(CodeNotFound, "nothing is served at this path") }

func fault(err error) *problem {
	return newProblem(CodeInternal, "the request failed by a fault of the server").because(err)
}

// notFound gives a KindNotFound error the code of what was looked for, and leaves other errors alone.
func notFound(err error, code Code) error {
	if e, ok := errors.AsType[*pipeline.Error](err); ok && e.Kind == pipeline.KindNotFound {
		return newProblem(code, e.Message)
	}
	return err
}
