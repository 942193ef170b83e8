package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// maxHealthBody bounds what is read of an answer: only its status counts.
const maxHealthBody = 64 << 10

// healthCmd is what a container without a shell checks its health with.
type healthCmd struct {
	URL     string        `arg:"" name:"url" help:"Address to ask, such as http://127.0.0.1:8080/readyz."`
	Timeout time.Duration `default:"3s" placeholder:"TIME" help:"How long to wait for the answer; default 3s."`
}

// Run asks once.
func (c *healthCmd) Run(a *app) error {
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return usagef("%q is not an address like http://127.0.0.1:8080/readyz", c.URL)
	}
	if c.Timeout <= 0 || c.Timeout > time.Minute {
		return usagef("--timeout %s: use more than 0 and at most 1m", c.Timeout)
	}
	ctx, cancel := context.WithTimeout(a.ctx, c.Timeout)
	defer cancel()
	status, err := ask(ctx, c.URL)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s does not answer within %s", u.Redacted(), c.Timeout)
	}
	if err != nil {
		return fmt.Errorf("%s does not answer: %w", u.Redacted(), deepest(err))
	}
	if status < 200 || status > 299 {
		return fmt.Errorf("%s answers with status %d", u.Redacted(), status)
	}
	return a.answer(map[string]any{"status": status}, "%s answers with status %d", u.Redacted(), status)
}

// ask goes to the address itself: a proxy's health is not the question, and neither is that of where it redirects to.
func ask(ctx context.Context, address string) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	client := &http.Client{
		Transport:     &http.Transport{Proxy: nil, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, maxHealthBody))
	return response.StatusCode, errors.Join(err, response.Body.Close())
}
