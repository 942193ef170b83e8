package httpapi

import (
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"sluice/pipeline"
	"sluice/pipeline/auditlog"
	"sluice/pipeline/operator"
)

// operators says who a request of the admin side comes from. Errors: *auth.Refused (401), *auth.BadHeader (400),
// *auth.TooManyAttempts (429), *pipeline.Error (KindUnavailable).
type operators interface {
	Identify(r *http.Request) (operator.Identity, error)
}

// operatorKey is where a request's context of echo has who it comes from.
const operatorKey = "operator"

// authenticate refuses requests without a token before anything else, which do not even learn which paths exist, and
// then those whose token has too small a role.
func (a *admin) authenticate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if isOpen(c.Request().URL.Path) {
			return next(c)
		}
		who, err := a.Operators.Identify(c.Request())
		if err != nil {
			return err
		}
		if needed, routed := roleOf(c.Request().Method, c.Path()); routed && !who.Role.Allows(needed) {
			return newProblem(codeForbidden, fmt.Sprintf("this needs the role %s; the token of %s has the role %s", needed,
				who.Name, who.Role))
		}
		c.Set(operatorKey, who)
		if err := explain(c); err != nil {
			return err
		}
		return next(c)
	}
}

// actor is the name that goes into the audit log.
func actor(c echo.Context) string {
	who, _ := c.Get(operatorKey).(operator.Identity) // authenticate has set it
	return who.Actor()
}

// reasonHeader says why something is done.
const reasonHeader = "X-Reason"

// explain has the lines in the audit log say why, where the request does.
func explain(c echo.Context) error {
	r := c.Request()
	values := r.Header[reasonHeader]
	if len(values) == 0 {
		return nil
	}
	if len(values) > 1 {
		return fieldError{reasonHeader, "send it once"}
	}
	if err := pipeline.ValidateReason(values[0]); err != nil {
		return fieldError{reasonHeader, messageOf(err)}
	}
	c.SetRequest(r.WithContext(auditlog.Because(r.Context(), values[0])))
	return nil
}
