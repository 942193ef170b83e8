package auth

import (
	"net/http"
	"strings"
)

const authorizationHeader = "Authorization"

// bearer returns the token of the request's Authorization header, "" where there is none. Twice the header is a
// *BadHeader: two tokens could be those of two people.
func bearer(h http.Header) (string, error) {
	values := h[authorizationHeader]
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 {
		return "", &BadHeader{authorizationHeader, "send it once"}
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", nil
	}
	return strings.Trim(token, " "), nil
}
