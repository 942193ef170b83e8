package httpapi

import (
	"errors"
	"net/http"

	"sluice/pipeline"
)

// authenticator identifies the buyer. It returns a valid user id (see pipeline.ValidateUserID), or one of these
// errors: *unauthenticated (401), fieldError (400), a *pipeline.Error (KindUnavailable: the keys or
// the service that prove identities can't be reached, 503). It may be called from many goroutines at once.
type authenticator interface {
	Authenticate(r *http.Request) (userID string, err error)
}

// unauthenticated is the error about a request that does not prove who sent it, with how it could.
type unauthenticated struct {
	Challenge string // the WWW-Authenticate header (RFC 9110, section 11.6.1)
	Detail    string // for the client
}

func (e *unauthenticated) Error() string { return "unauthenticated: " + e.Detail }

// userHeader names the buyer in DevAuth.
const userHeader = "X-User-Id"

// DevAuth believes the header X-User-Id. It proves nothing: it is for development, tests, and networks where a proxy
// in front has authenticated the buyer.
type DevAuth struct{}

// Authenticate returns the header's value. A missing or empty one is *unauthenticated, an impossible one a fieldError.
func (DevAuth) Authenticate(r *http.Request) (string, error) {
	values := r.Header[userHeader]
	if len(values) == 0 || len(values) == 1 && values[0] == "" {
		return "", &unauthenticated{
			Challenge: `Dev header="` + userHeader + `"`,
			Detail:    "name the buyer in the header " + userHeader,
		}
	}
	if len(values) > 1 {
		return "", fieldError{userHeader, "send it once"}
	}
	if err := pipeline.ValidateUserID(values[0]); err != nil {
		return "", fieldError{userHeader, messageOf(err)}
	}
	return values[0], nil
}

// messageOf returns the part of an error that is written for the client.
func messageOf(err error) string {
	if e, ok := errors.AsType[*pipeline.Error](err); ok {
		return e.Message
	}
	return "not valid"
}
