package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// reply is what the API answered to anything but an order request.
type reply struct {
	status   int
	code     string // of a problem
	orderID  string
	state    string // the member status, where it is a word: of an order, or of a stay in the waitlist
	position int
	outcome  string // of a payment
	body     string
}

// decided reports whether the reply says yes or no. Otherwise asking again may help.
func (r reply) decided() bool {
	return r.status != 0 && r.status != http.StatusTooManyRequests && r.status < http.StatusInternalServerError
}

// insist sends a request until the reply says yes or no, as a good client does. It returns an error when none did.
func (c *client) insist(ctx context.Context, build func(context.Context) (*http.Request, error)) (got reply, err error) {
	pause := firstPause
	for range attempts {
		if got, err = c.once(ctx, build); err == nil && got.decided() {
			return got, nil
		}
		if ctx.Err() != nil {
			return got, ctx.Err()
		}
		sleep(ctx, pause)
		pause *= 2
	}
	return got, fmt.Errorf("no answer in %d attempts, the last one %d %s: %w", attempts, got.status, got.code, err)
}

func (c *client) once(ctx context.Context, build func(context.Context) (*http.Request, error)) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, requestDeadline)
	defer cancel()
	request, err := build(ctx)
	if err != nil {
		return reply{}, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, answerLimit))
	if err != nil {
		return reply{}, err
	}
	return readReply(response.StatusCode, body)
}

func readReply(status int, body []byte) (reply, error) {
	r := reply{status: status, body: string(body)}
	if len(body) == 0 {
		return r, nil // 204
	}
	var told struct {
		Code     string `json:"code"`
		OrderID  string `json:"order_id"`
		Status   any    `json:"status"`
		Position int    `json:"position"`
		Outcome  string `json:"outcome"`
	}
	if err := json.Unmarshal(body, &told); err != nil {
		return reply{}, fmt.Errorf("status %d with a body that is not JSON: %w", status, err)
	}
	r.code, r.orderID, r.position, r.outcome = told.Code, told.OrderID, told.Position, told.Outcome
	r.state, _ = told.Status.(string)
	return r, nil
}

// call asks something as a buyer, about a path below the sale.
func (c *client) call(ctx context.Context, method, path, user, body string) (reply, error) {
	return c.insist(ctx, func(ctx context.Context) (*http.Request, error) {
		request, err := http.NewRequestWithContext(ctx, method, c.sale+path, strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		if body != "" {
			request.Header.Set("Content-Type", "application/json")
		}
		request.Header.Set("X-User-Id", user)
		return request, nil
	})
}
