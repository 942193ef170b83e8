package auth

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwt"

	"sluice/pipeline"
)

// reason is why a token is refused; it is also the label of the metric.
type reason string

const (
	missing      reason = "missing"
	malformed    reason = "malformed"
	algorithm    reason = "algorithm"
	unknownKey   reason = "unknown-key"
	badSignature reason = "signature"
	expired      reason = "expired"
	notYetValid  reason = "not-yet-valid"
	wrongIssuer  reason = "issuer"
	wrongPublic  reason = "audience"
	badClaims    reason = "claims"
	unavailable  reason = "unavailable" // of keys: nothing is known about the token
)

// readClaims checks what a verified token says, and returns the buyer and when the token expires. The error is a
// refusal.
func (t *Tokens) readClaims(payload []byte, now time.Time) (user string, expires time.Time, err error) {
	claims := jwt.New()
	if err := json.Unmarshal(payload, claims); err != nil {
		return "", expires, t.refuse(malformed, "the token's claims are no JSON object, or one of them has the wrong type")
	}
	expires, given := claims.Expiration()
	if !given {
		return "", expires, t.refuse(badClaims, "the token never expires: it has no exp")
	}
	o := &t.options
	switch err := jwt.Validate(claims, jwt.WithIssuer(o.Issuer), jwt.WithAudience(o.Audience),
		jwt.WithAcceptableSkew(o.Leeway), jwt.WithClock(jwt.ClockFunc(func() time.Time { return now }))); {
	case err == nil:
	case errors.Is(err, jwt.TokenExpiredError()):
		return "", expires, t.refuse(expired, "the token has expired")
	case errors.Is(err, jwt.TokenNotYetValidError()), errors.Is(err, jwt.InvalidIssuedAtError()):
		return "", expires, t.refuse(notYetValid, "the token is not valid yet")
	case errors.Is(err, jwt.InvalidIssuerError()):
		return "", expires, t.refuse(wrongIssuer, "the token is of another issuer")
	case errors.Is(err, jwt.InvalidAudienceError()):
		return "", expires, t.refuse(wrongPublic, "the token is for another audience")
	default:
		return "", expires, t.refuse(badClaims, "the token's claims are not valid")
	}
	if err := claims.Get(o.Claim, &user); err != nil {
		return "", expires, t.refuse(badClaims, "the token does not say who the buyer is: its "+o.Claim+" is missing or no text")
	}
	if err := pipeline.ValidateUserID(user); err != nil {
		return "", expires, t.refuse(badClaims, "the token's "+o.Claim+" can't be a buyer: "+err.Error())
	}
	return user, expires, nil
}
