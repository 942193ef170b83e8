package buyers

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	answerLimit    = 64 << 10 // bytes of an answer; real ones have a few hundred
	firstBackoff   = 50 * time.Millisecond
	longestBackoff = 2 * time.Second
	// abandonWithin is how soon after it was sent an abandoned request is given up: about as long as an answer takes,
	// so that some are given up before the order stands, some after, and some get their answer all the same.
	abandonWithin = 2 * time.Millisecond
)

// Options say how a client behaves.
type Options struct {
	APIs        []string      // base URLs
	Connections int           // to each API, at most
	Deadline    time.Duration // of one request; the API promises an answer within 2 s
	Attempts    int           // at one request, until there is an answer that says yes or no
	Durability  string        // that every receipt must promise; empty: any
	Refusals    []Outcome     // that a buyer may get besides already-ordered and sold-out
}

// Client sends requests as many buyers do, and writes the outcomes of orders into its history.
type Client struct {
	History *History
	opts    Options
	http    http.Client
}

// NewClient makes a client with a new history.
func NewClient(o Options) *Client {
	return &Client{History: NewHistory(), opts: o, http: http.Client{Transport: &http.Transport{
		Proxy:           nil, // the APIs are on this machine, whatever the environment says
		MaxConnsPerHost: o.Connections, MaxIdleConnsPerHost: o.Connections, MaxIdleConns: o.Connections * len(o.APIs),
		IdleConnTimeout: time.Minute, DisableCompression: true,
	}}}
}

// Close ends the kept connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Answer is what the API answered. Members that it did not have are zero.
type Answer struct {
	Status     int
	Code       string // of a problem
	OrderID    string
	Number     int64
	Quantity   int
	Durability string
	State      string // the member status, where it is a word: of an order, or of an entry in the waitlist
	Position   int
	Payment    string // what became of a payment
	Body       string
}

// decided reports whether the answer says yes or no. Otherwise asking again may help.
func (a Answer) decided() bool {
	return a.Status != 0 && a.Status != http.StatusTooManyRequests && a.Status < http.StatusInternalServerError
}

func readAnswer(status int, body []byte) (Answer, error) {
	a := Answer{Status: status, Body: string(body)}
	if len(body) == 0 {
		return a, nil // 204
	}
	var members struct {
		Code       string `json:"code"`
		OrderID    string `json:"order_id"`
		Number     string `json:"order_number"`
		Quantity   int    `json:"quantity"`
		Durability string `json:"durability"`
		Status     any    `json:"status"`
		Position   int    `json:"position"`
		Outcome    string `json:"outcome"`
	}
	if err := json.Unmarshal(body, &members); err != nil {
		return Answer{}, fmt.Errorf("status %d with a body that is not JSON: %w", status, err)
	}
	a.Code, a.OrderID, a.Quantity, a.Durability = members.Code, members.OrderID, members.Quantity, members.Durability
	a.Position, a.Payment = members.Position, members.Outcome
	a.Number, _ = strconv.ParseInt(members.Number, 10, 64)
	a.State, _ = members.Status.(string)
	return a, nil
}

// Order asks one of the APIs for units, once, and returns what came of it.
func (c *Client) Order(ctx context.Context, api int, r Request) Outcome {
	return c.order(ctx, api, r, false)
}

// Ask is Order, repeated with the same key until the answer says yes or no, as a good client does: each time at the
// next API, as a balancer would send it. It returns the last outcome and how many requests were sent; the last one
// went to API api+requests-1. A request to be abandoned is not repeated.
func (c *Client) Ask(ctx context.Context, api int, r Request) (o Outcome, requests int) {
	wait := firstBackoff
	for requests = 1; ; requests++ {
		o = c.order(ctx, api+requests-1, r, requests > 1)
		if o != NoAnswer || r.Abandon || requests == c.opts.Attempts || ctx.Err() != nil {
			return o, requests
		}
		Sleep(ctx, wait/2+rand.N(wait))
		wait = min(2*wait, longestBackoff)
	}
}

func (c *Client) order(ctx context.Context, api int, r Request, again bool) Outcome {
	began := time.Now()
	a, err := c.once(ctx, func(ctx context.Context) (*http.Request, error) { return c.orderRequest(ctx, api, r) })
	f := Fact{Request: r, Again: again, Took: time.Since(began), Order: a.OrderID, Number: a.Number}
	if err == nil {
		f.Outcome = c.examine(r, a)
	}
	c.History.Note(f)
	return f.Outcome
}

func (c *Client) orderRequest(ctx context.Context, api int, r Request) (*http.Request, error) {
	if r.Abandon {
		var giveUp context.CancelFunc
		ctx, giveUp = context.WithCancel(ctx) // it ends with the deadline at the latest
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			WroteRequest: func(httptrace.WroteRequestInfo) { time.AfterFunc(rand.N(abandonWithin), giveUp) },
		})
	}
	request, err := c.newRequest(ctx, api, call{
		method: http.MethodPost, sale: r.Sale, path: "/orders", user: r.User(), body: fmt.Sprintf(`{"quantity":%d}`,
			r.Quantity),
	})
	if err == nil && r.Key != NoKey {
		request.Header.Set("Idempotency-Key", fmt.Sprintf("%s-%d", r.User(), r.Key))
	}
	return request, err
}

// examine sorts an answer, and notes one that nobody should get.
func (c *Client) examine(r Request, a Answer) Outcome {
	o := outcomeOf(a)
	if (o == NotOpen || o == Closed) && !slices.Contains(c.opts.Refusals, o) {
		o = Unexpected
	}
	switch {
	case o == Unexpected:
		c.History.Strangef("%s, key %d: unexpected answer: status %d, code %q, order %q: %.200s", r.User(), r.Key,
			a.Status, a.Code, a.OrderID, a.Body)
	case o == Accepted && (a.Quantity != int(r.Quantity) || a.Number <= 0 || c.opts.Durability != "" &&
		a.Durability != c.opts.Durability):
		c.History.Strangef("%s asked for %d and got a receipt for %d, number %d, durability %s", r.User(), r.Quantity,
			a.Quantity, a.Number, a.Durability)
	}
	return o
}

// call is a request about a sale that is not an order.
type call struct{ method, sale, path, user, body string }

func (c *Client) newRequest(ctx context.Context, api int, one call) (*http.Request, error) {
	url := c.opts.APIs[api%len(c.opts.APIs)] + "/v1/sales/" + one.sale + one.path
	request, err := http.NewRequestWithContext(ctx, one.method, url, strings.NewReader(one.body))
	if err != nil {
		return nil, err
	}
	request.GetBody = nil // a request that lost its connection is not sent again behind our back
	if one.body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	request.Header.Set("X-User-Id", one.user)
	return request, nil
}

// call sends a request until the answer says yes or no.
func (c *Client) call(ctx context.Context, one call) (Answer, error) {
	return c.insist(ctx, func(ctx context.Context) (*http.Request, error) { return c.newRequest(ctx, 0, one) })
}

// insist sends a request until the answer says yes or no, as a good client does. It returns an error when none did.
func (c *Client) insist(ctx context.Context, build func(context.Context) (*http.Request, error)) (a Answer, err error) {
	wait := firstBackoff
	for range c.opts.Attempts {
		if a, err = c.once(ctx, build); err == nil && a.decided() {
			return a, nil
		}
		if ctx.Err() != nil {
			return a, ctx.Err()
		}
		Sleep(ctx, wait)
		wait = min(2*wait, longestBackoff)
	}
	return a, fmt.Errorf("no answer in %d attempts, the last one %d %s: %w", c.opts.Attempts, a.Status, a.Code, err)
}

func (c *Client) once(ctx context.Context, build func(context.Context) (*http.Request, error)) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Deadline)
	defer cancel()
	request, err := build(ctx)
	if err != nil {
		return Answer{}, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, answerLimit))
	if err != nil {
		return Answer{}, err
	}
	return readAnswer(response.StatusCode, body)
}

// Sleep returns after a time, or when the context ends.
func Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
