package httpapi

import (
	"errors"
	"net/http"

	"sluice/pipeline"
)

// authenticator identifies the buyer. It returns a valid user id (see pipeline.ValidateUserID), or one of these
// errors: *auth.Refused (401), *auth.BadHeader (400), a *pipeline.Error (KindUnavailable: the keys or the service that
// prove identities can't be reached, 503). It may be called from many goroutines at once.
type authenticator interface {
	Authenticate(r *http.Request) (userID string, err error)
}

// messageOf returns the part of an error that is written for the client.
func messageOf(err error) string {
	if e, ok := errors.AsType[*pipeline.Error](err); ok {
		return e.Message
	}
	return "not valid"
}
