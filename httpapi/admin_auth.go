package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"sluice/pipeline"
)

const (
	actorHeader  = "X-Actor"
	defaultActor = "admin-api"
	challenge    = `Bearer realm="sluice-admin"`
)

// authenticate lets in whoever has the token, before anything else is told: not even which paths exist.
func (a *admin) authenticate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !open(c.Request().URL.Path) {
			if err := a.checkToken(c.Request().Header); err != nil {
				return err
			}
		}
		return next(c)
	}
}

func (a *admin) checkToken(h http.Header) error {
	if a.Token == "" {
		return &unauthenticated{challenge, "nobody can be let in: set ADMIN_TOKEN, and start the api again"}
	}
	values := h["Authorization"]
	if len(values) != 1 {
		return &unauthenticated{challenge, "send the header Authorization: Bearer, with the value of ADMIN_TOKEN, once"}
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	// Hashes, so that the time tells nothing of the length either.
	given, wanted := sha256.Sum256([]byte(strings.TrimSpace(token))), sha256.Sum256([]byte(a.Token))
	if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(given[:], wanted[:]) != 1 {
		return &unauthenticated{challenge, "the token is not the ADMIN_TOKEN of this api"}
	}
	return nil
}

// actor is who the audit log says it was: what the header X-Actor says, which whoever has the token is trusted with.
func actor(h http.Header) (string, error) {
	values := h[actorHeader]
	switch {
	case len(values) == 0:
		return defaultActor, nil
	case len(values) > 1:
		return "", fieldError{actorHeader, "send it once"}
	}
	if err := pipeline.ValidateActor(values[0]); err != nil {
		return "", fieldError{actorHeader, messageOf(err)}
	}
	return values[0], nil
}
