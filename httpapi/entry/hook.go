package entry

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/time/rate"
)

// Limits of the hook.
const (
	DefaultHookTimeout = 2 * time.Second
	// MaxHookTimeout leaves the rest of a request, which is bounded too, its time.
	MaxHookTimeout = 4 * time.Second
	// MaxProofBytes bounds what a buyer's client sends for the hook: the longest captcha answers have some 2,000 bytes.
	MaxProofBytes = 2 << 10

	maxHookCalls   = 128  // at once: at 50 ms each, 2,500 tickets per second
	maxHookWaiting = 2048 // calls that are under way or wait for that; more are not asked
	maxAnswerBytes = 4 << 10
	maxReasonBytes = 200 // what the hook may tell a buyer
	hookUserAgent  = "Sluice-Entry/1"
	hookLogEvery   = 10 * time.Second
)

// HookOptions are those of a shop's own check: a captcha, a queue, a rule.
type HookOptions struct {
	URL      string        // http or https; user and password in it are sent as Basic authentication. Empty: no check
	Timeout  time.Duration // of a whole call, with the wait for its turn; 0: DefaultHookTimeout
	FailOpen bool          // give the ticket where the hook gives no answer, instead of refusing it
}

// Validate checks the options. The error never repeats the URL, which may have a password.
func (o HookOptions) Validate() error {
	u, err := url.Parse(o.URL)
	switch {
	case o.URL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https"):
		return errors.New("not a URL of the form https://shop.example.com/entry")
	case o.Timeout < 0 || o.Timeout > MaxHookTimeout:
		return fmt.Errorf("a check of %s takes longer than a request may: use up to %s", o.Timeout, MaxHookTimeout)
	}
	return nil
}

// Ask is what the hook decides about. It is the JSON that the hook gets.
type Ask struct {
	SaleID    string `json:"sale_id"`
	UserID    string `json:"user_id"`
	Client    string `json:"client_address"` // as far as it is known, see TRUSTED_PROXIES
	Proof     string `json:"proof"`          // what the buyer's client sent for the hook; empty: nothing
	RequestID string `json:"request_id"`

	// Bound is called right before the hook is, and done after it; its error is the answer. nil: nothing bounds how often
	// a buyer has the hook asked.
	Bound func() (done func(), err error) `json:"-"`
}

// Refused says that the hook refuses a buyer.
type Refused struct{ Reason string } // for the buyer; empty: none was given

func (e *Refused) Error() string { return "refused by the check in front of the sale: " + e.Reason }

type answer string

const (
	allowed answer = "allowed"
	refused answer = "refused"
	failed  answer = "failed"
	busy    answer = "busy"
)

// hook asks the shop's own check.
type hook struct {
	HookOptions
	client  *http.Client
	calls   chan struct{}
	waiting chan struct{}
	metrics *metrics
	log     *slog.Logger
	logged  rate.Sometimes // while the hook is away, it is asked some thousand times a second

	loggedOdd rate.Sometimes
}

// newHook returns a hook, or nil where none is configured.
func newHook(o HookOptions, m *metrics, log *slog.Logger) (*hook, error) {
	if err := o.Validate(); err != nil || o.URL == "" {
		return nil, err
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultHookTimeout
	}
	return &hook{
		HookOptions: o, metrics: m, log: log, logged: rate.Sometimes{Interval: hookLogEvery},
		loggedOdd: rate.Sometimes{Interval: hookLogEvery},
		calls:     make(chan struct{}, maxHookCalls), waiting: make(chan struct{}, maxHookWaiting),
		client: &http.Client{
			Transport: &http.Transport{
				DialContext:         (&net.Dialer{Timeout: o.Timeout}).DialContext,
				TLSHandshakeTimeout: o.Timeout, IdleConnTimeout: time.Minute,
				MaxIdleConns: maxHookCalls, MaxIdleConnsPerHost: maxHookCalls, MaxConnsPerHost: maxHookCalls,
				MaxResponseHeaderBytes: 16 << 10, DisableCompression: true,
			},
			// A redirect leads to a URL that nobody configured, with a buyer's proof.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// ask returns nil where the buyer may have a ticket. Errors: *Refused, ErrNoAnswer, those of ask.Bound.
func (h *hook) ask(ctx context.Context, ask *Ask) error {
	if ask.Bound != nil {
		done, err := ask.Bound()
		if err != nil {
			return err
		}
		defer done()
	}
	began := time.Now()
	got, reason, err := h.answer(ctx, ask)
	h.metrics.asked(got, time.Since(began))
	switch {
	case got == allowed:
		return nil
	case got == refused:
		return &Refused{reason}
	case ctx.Err() != nil: // the buyer has left
		return ErrNoAnswer
	}
	// What is busy was not asked: a flood must not buy tickets that its senders would not get by an answer.
	open := h.FailOpen && got == failed
	h.logged.Do(func() {
		h.log.Warn("the entry hook gave no answer", "error", err, "ticket_given", open)
	})
	if open {
		return nil
	}
	return ErrNoAnswer
}

// answer asks once, within the timeout. The error is for the log.
func (h *hook) answer(ctx context.Context, ask *Ask) (got answer, reason string, err error) {
	select {
	case h.waiting <- struct{}{}:
		defer func() { <-h.waiting }()
	default:
		return busy, "", fmt.Errorf("%d calls are under way or wait", maxHookWaiting)
	}
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	select {
	case h.calls <- struct{}{}:
		defer func() { <-h.calls }()
	case <-ctx.Done(): // those under way take as long, too
		return failed, "", fmt.Errorf("%d calls are under way, and none has ended in time", maxHookCalls)
	}
	status, body, err := h.call(ctx, ask)
	switch {
	case status/100 == 5:
		return failed, "", fmt.Errorf("it answered %d", status)
	case status != 0 && status/100 != 2: // whoever can make it answer so must gain nothing, with ENTRY_HOOK_FAIL=open
		if status != http.StatusForbidden {
			h.loggedOdd.Do(func() {
				h.log.Warn("the entry hook refused a buyer, by another status than 403", "status", status)
			})
		}
		return refused, reasonOf(body), nil
	case err != nil:
		return failed, "", err
	default:
		return allowed, "", nil
	}
}

func (h *hook) call(ctx context.Context, ask *Ask) (status int, body []byte, err error) {
	sent, err := json.Marshal(ask)
	if err != nil {
		return 0, nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(sent))
	if err != nil {
		return 0, nil, errors.New("the URL can't be used")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", hookUserAgent)
	response, err := h.client.Do(request)
	if err != nil {
		return 0, nil, withoutAddress(err)
	}
	defer response.Body.Close()
	// A 2xx that breaks off may come from something between us and the hook.
	body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	return response.StatusCode, body, withoutAddress(err)
}

// withoutAddress is the cause of a failed call, without URL and host. A URL may have a secret in its path, and where a
// password has a slash in it that is not escaped, what comes before that is taken for a host.
func withoutAddress(err error) error {
	if call, ok := errors.AsType[*url.Error](err); ok {
		err = call.Err
	}
	if name, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Errorf("the name in the URL can't be resolved: %s", strings.ReplaceAll(name.Err, name.Name, "…"))
	}
	if dial, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("%s: %w", dial.Op, dial.Err)
	}
	if wrong, ok := errors.AsType[x509.HostnameError](err); ok && wrong.Certificate != nil {
		return errors.New("its certificate is for another name")
	}
	return err
}

// reasonOf reads {"reason":"…"}. What is no short, printable text is left out: it is shown to a buyer.
func reasonOf(body []byte) string {
	var given struct {
		Reason string `json:"reason"`
	}
	if json.Unmarshal(body, &given) != nil || len(given.Reason) > maxReasonBytes || !utf8.ValidString(given.Reason) ||
		strings.ContainsFunc(given.Reason, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return ""
	}
	return given.Reason
}
