package httpapi

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"sluice/httpapi/auth"
	"sluice/internal/view"
)

const streamURLRoute = eventsRoute + "/url"

const (
	// streamURLLife is how long a signed URL opens streams: long enough for the reconnects of a bad network, short enough
	// for one that got into somebody's log.
	streamURLLife = 5 * time.Minute
	// streamURLSkew is how much the clocks of two apis may differ.
	streamURLSkew = time.Minute

	streamSecretBytes = 32
	// streamKeyPurpose separates this key from any other that may be derived from the same secret.
	streamKeyPurpose = "sluice: URL of an event stream, version 1"
	streamChallenge  = `SignedURL realm="sluice-stream"`
)

// The query parameters of a signed URL.
const (
	paramBuyer     = "buyer"
	paramExpires   = "expires"
	paramSignature = "signature"
)

// streamSigner signs the URLs by which a browser's EventSource, which can't send a header, opens the stream of one
// order as one buyer.
type streamSigner struct{ key []byte }

// newStreamSigner derives the key. Without a secret the URLs are valid at this process alone.
func newStreamSigner(secret []byte) (*streamSigner, error) {
	if len(secret) == 0 {
		secret = make([]byte, streamSecretBytes)
		_, _ = rand.Read(secret) // documented never to fail
	}
	if len(secret) < streamSecretBytes {
		return nil, fmt.Errorf("the secret of event streams has %d bytes, less than %d", len(secret), streamSecretBytes)
	}
	key, err := hkdf.Key(sha256.New, secret, nil, streamKeyPurpose, sha256.Size)
	return &streamSigner{key}, err
}

// signature covers all that the URL stands for. No part but the last can contain a line break, so no two differ in what
// they mean and agree in what is signed.
func (s *streamSigner) signature(saleID, orderID, userID string, expires int64) []byte {
	mac := hmac.New(sha256.New, s.key)
	fmt.Fprintf(mac, "%d\n%s\n%s\n%s", expires, saleID, orderID, userID)
	return mac.Sum(nil)
}

func (s *streamSigner) url(saleID, orderID, userID string, expires time.Time) string {
	signature := s.signature(saleID, orderID, userID, expires.Unix())
	return orderPath(saleID, orderID) + "/events?" + url.Values{
		paramBuyer: {userID}, paramExpires: {strconv.FormatInt(expires.Unix(), 10)},
		paramSignature: {base64.RawURLEncoding.EncodeToString(signature)},
	}.Encode()
}

// buyer returns the buyer for whom a URL was signed.
func (s *streamSigner) buyer(q *query, saleID, orderID string, now time.Time) (string, error) {
	userID, expires := q.text(paramBuyer), q.integer(paramExpires, 0, 1<<40, 0)
	given, err := base64.RawURLEncoding.DecodeString(q.text(paramSignature))
	if wrong := q.wrong(); wrong != nil {
		return "", wrong
	}
	if err != nil || !hmac.Equal(given, s.signature(saleID, orderID, userID, expires)) {
		return "", badStreamURL("the signature is not of this URL: use it as it was given, for this order")
	}
	left := time.Unix(expires, 0).Sub(now)
	if left <= 0 || left > streamURLLife+streamURLSkew {
		return "", badStreamURL("this URL has expired")
	}
	return userID, nil
}

func badStreamURL(detail string) error {
	return &auth.Refused{Challenge: streamChallenge, Detail: detail + "; POST to …/events/url gives another one"}
}

// streamView is a signed URL.
type streamView struct {
	URL       string `json:"url"` // without the origin, which only the client knows
	ExpiresAt string `json:"expires_at"`
}

// signStream answers POST …/events/url with a URL that opens the stream of the buyer's own order without any header.
func (a *api) signStream(c echo.Context) error {
	userID, orderID, sale, err := a.buyerOrderAndSale(c)
	if err != nil {
		return err
	}
	if _, err := a.order(c.Request().Context(), sale, userID, orderID); err != nil {
		return notFound(err, codeUnknownOrder)
	}
	expires := a.Now().Add(streamURLLife).Truncate(time.Second)
	return sendJSON(c, http.StatusOK, streamView{a.signer.url(sale.ID, orderID, userID, expires), view.Time(expires)})
}

// streamBuyer returns who opens a stream, and of which order: by a signed URL, or like any other request.
func (a *api) streamBuyer(c echo.Context) (userID, orderID string, err error) {
	raw := c.Request().URL.RawQuery
	if raw == "" {
		return a.buyerAndOrder(c)
	}
	q, err := readQuery(raw)
	if err != nil {
		return "", "", err
	}
	q.lax = true // clients add their own, such as lastEventId
	if !q.values.Has(paramSignature) {
		return a.buyerAndOrder(c)
	}
	if orderID, err = orderParam(c); err != nil {
		return "", "", err
	}
	saleID, err := pathParam(c, "sale")
	if err != nil {
		return "", "", err
	}
	userID, err = a.signer.buyer(q, saleID, orderID, a.Now())
	return userID, orderID, err
}
