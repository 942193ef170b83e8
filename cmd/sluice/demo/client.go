package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"strings"
	"time"
)

const (
	clientConns     = 128             // connections at most, as many as there are senders
	requestDeadline = 5 * time.Second // one request; the API promises an answer within 2 s
	answerLimit     = 64 << 10        // bytes of an answer; real ones have a few hundred
	attempts        = 8               // of one ask, until it has an answer that says yes or no
	firstPause      = 50 * time.Millisecond
	// abandonWithin is how soon after it was sent an abandoned request is given up: about as long as an answer takes, so
	// that some are given up before the order stands, some after, and some get their answer all the same.
	abandonWithin = 2 * time.Millisecond
)

// answer is what a client was told.
type answer struct {
	code       string // accepted, or the problem's code; empty when there was no answer
	orderID    string
	durability string
	took       time.Duration
	err        error // why there was no answer
}

// definite reports whether the answer says yes or no. Otherwise the client asks again with the same key.
func (a answer) definite() bool {
	switch a.code {
	case codeAccepted, codeAlreadyOrdered, codeSoldOut, codeNotOpen, codeClosed:
		return true
	default:
		return false
	}
}

// The answers that a buyer of this sale can get. Anything else is either passing or a finding.
const (
	codeAccepted       = "accepted"
	codeAlreadyOrdered = "already-ordered"
	codeSoldOut        = "sold-out"
	codeNotOpen        = "sale-not-open"
	codeClosed         = "sale-closed"
)

// client sends order requests as many buyers do.
type client struct {
	http http.Client
	sale string // URL of the sale
	url  string // of its orders
}

func newClient(api, saleID string) *client {
	return &client{
		sale: api + "/v1/sales/" + saleID,
		url:  api + "/v1/sales/" + saleID + "/orders",
		http: http.Client{Transport: &http.Transport{
			Proxy:           nil, // the API is on this machine, whatever the environment says
			MaxConnsPerHost: clientConns, MaxIdleConnsPerHost: clientConns, MaxIdleConns: clientConns,
			IdleConnTimeout: time.Minute, DisableCompression: true,
		}},
	}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// order sends one request and returns what came of it.
func (c *client) order(ctx context.Context, a ask) answer {
	ctx, cancel := context.WithTimeout(ctx, requestDeadline)
	defer cancel()
	if a.abandon {
		ctx = abandoned(ctx, cancel)
	}
	began := time.Now()
	got, err := c.send(ctx, a)
	got.took, got.err = time.Since(began), err
	return got
}

// abandoned gives up at some moment after the request is on its way: it may well be carried out.
func abandoned(ctx context.Context, giveUp func()) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { time.AfterFunc(rand.N(abandonWithin), giveUp) },
	})
}

func (c *client) send(ctx context.Context, a ask) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(`{"quantity":1}`))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-User-Id", a.user())
	request.Header.Set("Idempotency-Key", a.idempotencyKey())
	response, err := c.http.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, answerLimit))
	if err != nil {
		return answer{}, err
	}
	return readAnswer(response.StatusCode, body)
}

func readAnswer(status int, body []byte) (answer, error) {
	var told struct {
		Code       string `json:"code"`
		OrderID    string `json:"order_id"`
		Durability string `json:"durability"`
		Status     any    `json:"status"`
	}
	if err := json.Unmarshal(body, &told); err != nil {
		return answer{}, fmt.Errorf("status %d with a body that is not JSON: %w", status, err)
	}
	if status == http.StatusAccepted {
		if told.OrderID == "" || told.Status != "queued" {
			return answer{}, fmt.Errorf("a 202 without an order: %.200s", body)
		}
		return answer{code: codeAccepted, orderID: told.OrderID, durability: told.Durability}, nil
	}
	if told.Code == "" {
		return answer{}, fmt.Errorf("status %d without a code: %.200s", status, body)
	}
	return answer{code: told.Code, orderID: told.OrderID}, nil
}
