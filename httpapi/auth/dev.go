package auth

import (
	"net/http"

	"sluice/pipeline"
)

// UserHeader names the buyer in Dev, and in Proxy unless a setting says otherwise.
const UserHeader = "X-User-Id"

// Dev believes the header X-User-Id of every request. It proves nothing: it is for development and tests.
type Dev struct{}

// Authenticate returns the header's value. Errors: *Refused where it is missing or empty, *BadHeader where it is there
// twice or can't be a user id.
func (Dev) Authenticate(r *http.Request) (string, error) {
	return userFrom(r, UserHeader, `Dev header="`+UserHeader+`"`, "name the buyer in the header "+UserHeader)
}

// userFrom reads a header that names the buyer. Its name must be in canonical form.
func userFrom(r *http.Request, header, challenge, missing string) (string, error) {
	values := r.Header[header]
	if len(values) == 0 || len(values) == 1 && values[0] == "" {
		return "", &Refused{Challenge: challenge, Detail: missing}
	}
	if len(values) > 1 {
		return "", &BadHeader{header, "send it once"}
	}
	if err := pipeline.ValidateUserID(values[0]); err != nil {
		return "", &BadHeader{header, err.Error()}
	}
	return values[0], nil
}
