package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// answerTimeout bounds one attempt. The API answers within its own, shorter deadline.
	answerTimeout = 10 * time.Second
	// patience bounds all attempts at one request together: a stack that is down for longer has failed the test.
	patience = 60 * time.Second
	// pause is the time between two attempts.
	pause = 200 * time.Millisecond
	// maxAnswerBytes is far above any answer of the API.
	maxAnswerBytes = 64 << 10
)

// answer is what the API said: an order, or a problem's code.
type answer struct {
	Status  int    `json:"-"`
	OrderID string `json:"order_id"`
	Code    string `json:"code"`
}

// sender posts orders as a careful buyer does: what was not answered, or refused for the moment, is sent again with the
// same key.
type sender struct {
	url    string
	client *http.Client
}

// send returns the answer that settles the request, and how many attempts before it failed.
func (s *sender) send(ctx context.Context, r request) (answer, int, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for retries := 0; ; retries++ {
		got, err := s.attempt(ctx, r)
		if err == nil && got.Status != http.StatusServiceUnavailable && got.Status != http.StatusTooManyRequests {
			return got, retries, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return got, retries, fmt.Errorf("%s got no answer that settles it in %d attempts (last status %d): %w",
				r.buyer, retries+1, got.Status, errors.Join(err, ctx.Err()))
		}
	}
}

func (s *sender) attempt(ctx context.Context, r request) (answer, error) {
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, nil)
	if err != nil {
		return answer{}, err
	}
	post.Header.Set("X-User-Id", r.buyer)
	post.Header.Set("Idempotency-Key", r.key)
	response, err := s.client.Do(post)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	got := answer{Status: response.StatusCode}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return answer{}, err
	}
	if err := json.Unmarshal(body, &got); err != nil {
		return answer{}, fmt.Errorf("status %d with a body that is no JSON: %w", response.StatusCode, err)
	}
	return got, nil
}
