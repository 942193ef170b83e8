package auth

import (
	"errors"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"sluice/pipeline/operator"
)

// operatorRealm is what operators' tokens are asked for.
const operatorRealm = `Bearer realm="sluice-admin"`

// TooManyAttempts is the error about a client that sent so many wrong tokens that none is looked at now (429).
type TooManyAttempts struct {
	Wait time.Duration // until one is
}

func (e *TooManyAttempts) Error() string {
	return "too many wrong tokens: wait " + strconv.Itoa(e.Seconds()) + " s"
}

// Seconds is how long to wait, for the header Retry-After.
func (e *TooManyAttempts) Seconds() int { return int((e.Wait + time.Second - 1) / time.Second) }

// Operators identifies operators by their tokens, and slows down guessing.
type Operators struct {
	keyring  *operator.Keyring
	client   func(*http.Request) netip.Prefix
	attempts attempts
	results  *prometheus.CounterVec
}

// NewOperators returns Operators that count the wrong tokens of each client; all that it does not know (the invalid
// prefix) are one. reg gets the metrics; nil: nobody does.
func NewOperators(
	keyring *operator.Keyring, client func(*http.Request) netip.Prefix, reg prometheus.Registerer,
) *Operators {
	return &Operators{
		keyring: keyring, client: client, attempts: attempts{now: time.Now},
		results: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_operator_tokens_total",
			Help: "Requests of operators by what became of their token: accepted, missing, unknown, expired, revoked, " +
				"too-many (not looked at), unavailable.",
		}, []string{"result"}),
	}
}

// Identify returns who a request comes from. Errors: *Refused, *BadHeader, *TooManyAttempts, and those of the store
// (pipeline.KindUnavailable).
func (o *Operators) Identify(r *http.Request) (operator.Identity, error) {
	token, err := bearer(r.Header)
	if err != nil {
		o.count("unknown")
		return operator.Identity{}, err
	}
	if token == "" {
		o.count("missing")
		return operator.Identity{}, &Refused{
			operatorRealm,
			"send the header Authorization: Bearer, with a token; sluice token add makes one",
		}
	}
	return o.check(r, token)
}

// SignIn returns who a token is of that a person typed, and what a session keeps of it. Wrong ones count with those of
// headers. Errors: those of Identify.
func (o *Operators) SignIn(r *http.Request, token string) (operator.Identity, operator.Session, error) {
	if token == "" {
		o.count("missing")
		return operator.Identity{}, operator.Session{}, &Refused{operatorRealm, "type a token"}
	}
	who, err := o.check(r, token)
	if err != nil {
		return operator.Identity{}, operator.Session{}, err
	}
	return who, operator.SessionOf(who, token), nil
}

// Continue returns whose session it is. Errors: operator.ErrUnknown, ErrExpired, ErrRevoked, KindUnavailable.
func (o *Operators) Continue(r *http.Request, s operator.Session) (operator.Identity, error) {
	return o.keyring.Continue(r.Context(), s)
}

func (o *Operators) check(r *http.Request, token string) (operator.Identity, error) {
	// A token that was right here before is no guess: nobody who guesses can keep its owner out.
	from := o.client(r)
	if wait := o.attempts.wait(from); wait > 0 && !o.keyring.Remembers(token) {
		o.count("too-many")
		return operator.Identity{}, &TooManyAttempts{wait}
	}
	who, err := o.keyring.Identify(r.Context(), token)
	switch {
	case err == nil:
		o.attempts.rightly(from)
		o.count("accepted")
		return who, nil
	case errors.Is(err, operator.ErrUnknown):
		o.attempts.wrong(from)
		return who, o.refuse("unknown", err)
	case errors.Is(err, operator.ErrExpired): // it was right once: no guess
		return who, o.refuse("expired", err)
	case errors.Is(err, operator.ErrRevoked):
		return who, o.refuse("revoked", err)
	default:
		o.count("unavailable")
		return who, err
	}
}

func (o *Operators) refuse(result string, why error) error {
	o.count(result)
	return &Refused{operatorRealm + `, error="invalid_token"`, why.Error()}
}

func (o *Operators) count(result string) { o.results.WithLabelValues(result).Inc() }
