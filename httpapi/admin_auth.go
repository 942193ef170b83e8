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

// authenticate refuses requests without the token before anything else: they do not even learn which paths exist.
func (a *admin) authenticate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !isOpen(c.Request().URL.Path) {
			if err := a.checkToken(c.Request().Header); err != nil {
				return err
			}
		}
		return next(c)
	}
}

func (a *admin) checkToken(h http.Header) error {
	if a.Token == "" {
		return &unauthenticated{challenge, "the admin API is closed: set ADMIN_TOKEN, and start the api again"}
	}
	values := h["Authorization"]
	if len(values) != 1 {
		return &unauthenticated{challenge, "send the header Authorization: Bearer, with the value of ADMIN_TOKEN, once"}
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	// Hashes, so that the time taken does not reveal the length either.
	given, wanted := sha256.Sum256([]byte(strings.TrimSpace(token))), sha256.Sum256([]byte(a.Token))
	if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(given[:], wanted[:]) != 1 {
		return &unauthenticated{challenge, "the token is not the ADMIN_TOKEN of this api"}
	}
	return nil
}

// actor is the name that goes into the audit log: the header X-Actor, which is believed because the token was right.
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
