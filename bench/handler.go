package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"sluice/internal/loadgen"
)

// benchHandler calls the handlers without a network: what is left of the difference is the price of admission alone.
func benchHandler(ctx context.Context, s *testbed, _ *Report) (results []Result, err error) {
	a, err := newAPI(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.close(ctx)) }()
	c := comparison{
		name:  "handler",
		title: fmt.Sprintf("The handler without a network, %d callers in one process", s.opts.Clients),
		unit:  "orders",
		candidates: []candidate{
			s.callers("accepted", a.full, true),
			s.callers("parse and answer", a.quick, false),
		},
		pairs: []pair{{"accepted / parse and answer", 0, 1}},
	}
	result, err := c.run(ctx, s)
	return []Result{result}, err
}

// brief is the part of a full round that suffices without a network.
const brief = 0.6

func (s *testbed) callers(name string, h http.Handler, admit bool) candidate {
	var first uint64
	var length time.Duration
	return candidate{
		name: name,
		prepare: func(ctx context.Context, share float64) error {
			first, length = s.newBuyers(), s.opts.length(share*brief)
			return s.clear(ctx)
		},
		run: func(ctx context.Context) (Work, error) {
			return together(s.opts.Clients, length, func(i int) func() error {
				return s.newCaller(ctx, h, first+uint64(i)).order
			})
		},
		check: servedHandler{testbed: s, admit: admit}.check,
	}
}

// caller is a client of a handler: one request and one answer, used again and again.
type caller struct {
	testbed *testbed
	handler http.Handler
	request *http.Request
	body    bytes.Reader
	answer  answer
	buyer   uint64
}

func (s *testbed) newCaller(ctx context.Context, h http.Handler, buyer uint64) *caller {
	c := &caller{testbed: s, handler: h, buyer: buyer, answer: answer{header: http.Header{}}}
	c.request, _ = http.NewRequestWithContext(ctx, http.MethodPost, ordersPath, http.NoBody) // a constant, correct path
	c.request.Header = http.Header{"X-User-Id": {""}, "Content-Type": {"application/json"}}
	if s.opts.Keys {
		c.request.Header["Idempotency-Key"] = []string{""}
	}
	c.request.Body, c.request.ContentLength = io.NopCloser(&c.body), int64(len(oneUnit))
	return c
}

var oneUnit = []byte(`{"quantity":1}`)

func (c *caller) order() error {
	id := loadgen.BuyerID(c.testbed.opts.Seed, c.buyer)
	c.buyer += uint64(c.testbed.opts.Clients)
	c.request.Header["X-User-Id"][0] = id
	if c.testbed.opts.Keys {
		c.request.Header["Idempotency-Key"][0] = "order-" + id
	}
	c.body.Reset(oneUnit)
	clear(c.answer.header)
	c.handler.ServeHTTP(&c.answer, c.request)
	if c.answer.status != http.StatusAccepted {
		return fmt.Errorf("status %d instead of 202", c.answer.status)
	}
	return nil
}

// answer is an http.ResponseWriter that keeps the status.
type answer struct {
	header http.Header
	status int
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return len(b), nil }
