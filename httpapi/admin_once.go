package httpapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/labstack/echo/v4"

	"sluice/pipeline/idempotency"
)

// repeatedHeader says that an answer is that of an earlier request with the same key.
const repeatedHeader = "Idempotent-Replayed"

// answerHeaders are kept with an answer; the others belong to each request of its own.
var answerHeaders = []string{headerContentType, headerLocation, headerRetryAfter}

// command routes a change that operators may ask for with an Idempotency-Key.
func (a *admin) command(e *echo.Echo, path string, handler echo.HandlerFunc) {
	e.POST(adminRoot+path, brief(a.once(handler)))
}

// once has a handler do what a request with an Idempotency-Key asks for once. The same request gets the answer of the
// first, whatever became of the process that gave it. What was no answer (a store did not reply, or another change is
// under way) may be tried again with the key; what was no request (a field breaks a rule) leaves it free.
func (a *admin) once(next echo.HandlerFunc) echo.HandlerFunc { return a.onceAs(next, verdictOf) }

func (a *admin) onceAs(
	next echo.HandlerFunc, verdict func(*idempotency.Answer) idempotency.Verdict,
) echo.HandlerFunc {
	return func(c echo.Context) error {
		key, err := idempotencyKey(c.Request().Header)
		if err != nil {
			return err
		}
		if key == "" {
			return next(c)
		}
		body, err := readBody(c, maxBodyBytes)
		if err != nil {
			return err
		}
		r := c.Request()
		r.Body = io.NopCloser(bytes.NewReader(body))
		var refused *problem // for the log
		answer, repeated, err := a.Requests.Once(r.Context(),
			idempotency.NewRequest(key, "http", r.Method, r.URL.EscapedPath(), string(body)),
			func(ctx context.Context) (idempotency.Answer, idempotency.Verdict, error) {
				c.SetRequest(r.WithContext(ctx))
				answer, p, err := record(c, next)
				refused = p
				return answer, verdict(&answer), err
			})
		switch {
		case errors.Is(err, idempotency.ErrReused):
			return newProblem(codeIdempotencyKeyReused, messageOf(err))
		case errors.Is(err, idempotency.ErrInUse):
			return newProblem(codeIdempotencyKeyInUse, messageOf(err))
		case err != nil:
			return err
		case refused != nil:
			return refused
		}
		h := c.Response().Header()
		for name, value := range answer.Header {
			h[name] = []string{value}
		}
		if repeated {
			h[repeatedHeader] = []string{"true"}
		}
		return send(c, answer.Status, h[headerContentType], answer.Body)
	}
}

// verdictOf says what becomes of a key after an answer. One that says when to try again is none.
func verdictOf(a *idempotency.Answer) idempotency.Verdict {
	switch {
	case a.Status >= http.StatusInternalServerError, a.Header[headerRetryAfter] != "":
		return idempotency.Repeat
	case a.Status == http.StatusBadRequest, a.Status == http.StatusRequestEntityTooLarge,
		a.Status == http.StatusUnsupportedMediaType:
		return idempotency.Forget
	default:
		return idempotency.Final
	}
}

// verdictOfSecret keeps no answer that has a secret: the same request finds what the first one made, and answers from
// that.
func verdictOfSecret(a *idempotency.Answer) idempotency.Verdict {
	if a.Status < http.StatusMultipleChoices {
		return idempotency.Repeat
	}
	return verdictOf(a)
}

// record runs a handler and returns its answer, and the problem that this is, without sending it.
func record(c echo.Context, next echo.HandlerFunc) (answer idempotency.Answer, refused *problem, err error) {
	response := c.Response()
	// With the header so far: the problem document has the request's id.
	sent := &recorder{header: response.Header().Clone(), status: http.StatusOK}
	c.SetResponse(echo.NewResponse(sent, c.Echo()))
	defer c.SetResponse(response)
	if err := next(c); err != nil {
		refused = problemFor(c, err)
		if err := refused.write(c); err != nil {
			return answer, refused, err
		}
	}
	answer = idempotency.Answer{Status: sent.status, Header: map[string]string{}, Body: sent.body.Bytes()}
	for _, name := range answerHeaders {
		if values := sent.header[name]; len(values) == 1 {
			answer.Header[name] = values[0]
		}
	}
	return answer, refused, nil
}

// recorder keeps what a handler sends.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) { r.status = status }

func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }
