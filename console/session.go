package console

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"sluice/pipeline/operator"
)

const (
	// sessionLife is how long one sign-in lasts: a working day. It ends with its token, too.
	sessionLife = 12 * time.Hour
	// clockSlack is how far the clocks of two apis may differ.
	clockSlack = time.Minute
	// maxCookieBytes is far above any cookie of ours.
	maxCookieBytes = 1000
	// keptSignOuts bounds the memory of sessions that were ended before their time, some 100 bytes each.
	keptSignOuts = 10_000

	// cookieName is that of the cookie; under TLS with a prefix by which browsers take it from this host alone.
	cookieName       = "sluice_console"
	secureCookieName = "__Host-" + cookieName
)

// session is what the cookie of a signed-in browser says. It has no token: only which one began it, and a print of that
// one's hash, so that the session ends with it. Any api of the installation can read it, and nobody else can write it.
type session struct {
	TokenID string `json:"t"`
	Print   string `json:"p"`
	Nonce   string `json:"n"` // names the session
	Begun   int64  `json:"b"` // Unix seconds
}

// sessions seals and opens cookies.
type sessions struct {
	key []byte
	now func() time.Time

	mu    sync.Mutex           // protects ended
	ended map[string]time.Time // sessions that were signed out here, by nonce, until when they would have lasted
}

// newSessions derives its key from a secret that all apis of the installation have.
func newSessions(secret []byte, now func() time.Time) *sessions {
	return &sessions{key: mac(secret, "sluice console: sessions"), now: now, ended: map[string]time.Time{}}
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// begin makes a session of a token that was taken.
func (s *sessions) begin(of operator.Session) session {
	return session{TokenID: of.TokenID, Print: of.Print, Nonce: rand.Text(), Begun: s.now().Unix()}
}

func (s *sessions) seal(one session) (string, error) {
	text, err := json.Marshal(one)
	if err != nil {
		return "", err
	}
	sealed := base64.RawURLEncoding.EncodeToString(text)
	return sealed + "." + base64.RawURLEncoding.EncodeToString(mac(s.key, sealed)), nil
}

var errNoSession = errors.New("there is no session")

// open returns the session of a cookie's value. Errors: errNoSession, for whatever is wrong with it.
func (s *sessions) open(cookie string) (one session, err error) {
	sealed, sum, _ := strings.Cut(cookie, ".")
	given, err := base64.RawURLEncoding.DecodeString(sum)
	if err != nil || len(cookie) > maxCookieBytes || subtle.ConstantTimeCompare(given, mac(s.key, sealed)) != 1 {
		return session{}, errNoSession
	}
	text, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil || json.Unmarshal(text, &one) != nil {
		return session{}, errNoSession
	}
	begun, now := time.Unix(one.Begun, 0), s.now()
	if now.Sub(begun) >= sessionLife || begun.Sub(now) > clockSlack || s.isEnded(one.Nonce) {
		return session{}, errNoSession
	}
	return one, nil
}

// end makes a session count no more here, although its cookie was copied. Another api takes such a copy until the
// session's time is over; revoking the token ends it everywhere.
func (s *sessions) end(one session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if len(s.ended) >= keptSignOuts {
		for nonce, until := range s.ended {
			if now.After(until) {
				delete(s.ended, nonce)
			}
		}
	}
	if len(s.ended) < keptSignOuts {
		s.ended[one.Nonce] = time.Unix(one.Begun, 0).Add(sessionLife)
	}
}

func (s *sessions) isEnded(nonce string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ended := s.ended[nonce]
	return ended
}

// formToken is what a form of this session must send with it, and no page of another origin can know.
func (s *sessions) formToken(one session) string {
	return hex.EncodeToString(mac(s.key, "form:"+one.Nonce))
}

// of returns the session of a request.
func (s *sessions) of(r *http.Request) (session, error) {
	for _, name := range []string{secureCookieName, cookieName} {
		if cookie, err := r.Cookie(name); err == nil && (name == secureCookieName || !secure(r)) {
			return s.open(cookie.Value)
		}
	}
	return session{}, errNoSession
}

// secure reports whether the browser speaks TLS with us or with the proxy before us. A client that only says so keeps
// nobody's cookie but its own from being sent.
func secure(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// cookie is the one that holds a value for so many seconds; a negative number removes it.
func cookie(r *http.Request, value string, seconds int) *http.Cookie {
	c := &http.Cookie{
		Name: cookieName, Value: value, Path: root, MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
	if secure(r) {
		c.Name, c.Path, c.Secure = secureCookieName, "/", true // as the prefix asks for
	}
	return c
}
