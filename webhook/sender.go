package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sluice/pipeline"
)

// Limits of one delivery.
const (
	// sendTimeout bounds a whole delivery, from the look-up of the name to the end of the answer. A receiver that needs
	// longer should store the event and answer.
	sendTimeout = 10 * time.Second
	// answerBytes is how much of an answer's body is read and discarded, so that the connection can be used again.
	answerBytes = 64 << 10
	// answerHeaderBytes bounds the answer's header.
	answerHeaderBytes = 16 << 10
	// idleConnTimeout keeps a connection for the next event of a busy sale.
	idleConnTimeout = time.Minute
	// maxErrorBytes bounds the part of an error that is stored.
	maxErrorBytes = 300
)

const (
	contentType = "application/cloudevents+json; charset=utf-8"
	userAgent   = "Sluice-Webhooks/1"
)

// Outcome is the kind of result of one delivery. The values are labels of metrics.
type Outcome string

// The outcomes.
const (
	Delivered Outcome = "delivered" // 2xx
	Refused   Outcome = "refused"   // another status
	Gone      Outcome = "gone"      // 410: the receiver wants no more events
	Failed    Outcome = "failed"    // no answer in time, or the target is not allowed
	Unsigned  Outcome = "unsigned"  // nothing was sent: here the endpoint's secret can't be decrypted
)

// Result is the result of one delivery.
type Result struct {
	Outcome    Outcome
	Status     int           // of the answer; 0 without one
	Error      string        // for operators; empty when delivered
	RetryAfter time.Duration // what the receiver asks for; 0: nothing
	Took       time.Duration
}

// sender delivers single events. It is safe for concurrent use.
type sender struct {
	policy  Policy
	keys    *Keyring
	client  *http.Client
	timeout time.Duration
}

// newSender returns a sender. It uses no proxy, whatever the environment says: a proxy would connect where the policy
// forbids it.
func newSender(policy Policy, keys *Keyring) *sender {
	dialer := &net.Dialer{Timeout: sendTimeout, Control: policy.control}
	return &sender{policy: policy, keys: keys, timeout: sendTimeout, client: &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSHandshakeTimeout: sendTimeout, IdleConnTimeout: idleConnTimeout,
			MaxIdleConnsPerHost: 2, MaxIdleConns: 2 * MaxEndpoints, MaxResponseHeaderBytes: answerHeaderBytes,
			DisableCompression: true, ForceAttemptHTTP2: true,
		},
		// A redirect leads to a URL that was not registered.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// close closes idle connections.
func (s *sender) close() { s.client.CloseIdleConnections() }

// send delivers one event once, within sendTimeout. A failure is a result too.
func (s *sender) send(ctx context.Context, e *Endpoint, event *Event) Result {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	result := s.attempt(ctx, e, event, began)
	result.Took = time.Since(began)
	return result
}

func (s *sender) attempt(ctx context.Context, e *Endpoint, event *Event, now time.Time) Result {
	request, err := s.request(ctx, e, event, now)
	if unsigned, ok := errors.AsType[*unsignedError](err); ok {
		result := failed(unsigned.cause)
		result.Outcome = Unsigned
		return result
	}
	if err != nil {
		return failed(err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return failed(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(response.Body, answerBytes)); err != nil {
		return failed(err) // a 2xx with a broken answer may have come from something between us and the receiver
	}
	return classify(response)
}

// unsignedError says that an event can't be signed, which is not the receiver's doing.
type unsignedError struct{ cause error }

func (e *unsignedError) Error() string { return e.cause.Error() }

func (e *unsignedError) Unwrap() error { return e.cause }

// request is signed for each attempt: receivers refuse a timestamp that is some minutes old.
func (s *sender) request(ctx context.Context, e *Endpoint, event *Event, now time.Time) (*http.Request, error) {
	if err := s.policy.CheckURL(e.URL); err != nil { // it may have been registered under another policy
		return nil, err
	}
	body, err := event.body()
	if err != nil {
		return nil, err
	}
	signatures, err := s.sign(e, event.ID, now, body)
	if err != nil {
		return nil, &unsignedError{err}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("User-Agent", userAgent)
	request.Header.Set(standardwebhooks.HeaderWebhookID, event.ID)
	request.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	request.Header.Set(standardwebhooks.HeaderWebhookSignature, signatures)
	return request, nil
}

// sign returns the signatures by the endpoint's secrets, with spaces between them, as Standard Webhooks has it. A
// secret before the current one that can't be used is left out: its key may be the reason why there is another.
func (s *sender) sign(e *Endpoint, id string, now time.Time, body []byte) (string, error) {
	var signatures []string
	for _, stored := range []string{e.Secret, e.PreviousSecret} {
		if stored == "" {
			continue
		}
		secret, err := s.keys.decrypt(stored, e.ID, e.URL)
		if err != nil && len(signatures) > 0 {
			continue
		}
		if err != nil {
			return "", err
		}
		signer, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			return "", errors.New("the secret can't be used")
		}
		signature, err := signer.Sign(id, now, body)
		if err != nil {
			return "", errors.New("the event can't be signed")
		}
		signatures = append(signatures, signature)
	}
	return strings.Join(signatures, " "), nil
}

func classify(response *http.Response) Result {
	status := response.StatusCode
	r := Result{Outcome: Refused, Status: status, Error: fmt.Sprintf("the receiver answered %d", status)}
	switch {
	case status/100 == 2:
		return Result{Outcome: Delivered, Status: status}
	case status/100 == 3:
		r.Error += "; redirects are not followed: register where it leads"
	case status == http.StatusGone:
		r.Outcome = Gone
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		r.RetryAfter = retryAfter(response.Header.Get("Retry-After"))
	}
	return r
}

// retryAfter parses a number of seconds, at most MaxBackoff; the form with a date is ignored.
func retryAfter(text string) time.Duration {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0
	}
	return min(time.Duration(n)*time.Second, MaxBackoff)
}

// failed is the result of a delivery that got no answer. Its error leaves out the URL: operators know it, and its query
// may contain a token.
func failed(err error) Result {
	var named *url.Error
	if errors.As(err, &named) {
		err = named.Err
	}
	var ours *pipeline.Error
	text := err.Error()
	switch {
	case errors.As(err, &ours):
		text = ours.Message
	case errors.Is(err, context.DeadlineExceeded):
		text = fmt.Sprintf("no whole answer within %s", sendTimeout)
	}
	return Result{Outcome: Failed, Error: sanitize(text)}
}

// sanitize makes a text safe for every log, terminal and column.
func sanitize(text string) string {
	if len(text) > maxErrorBytes {
		text = text[:maxErrorBytes]
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, ""))
}
