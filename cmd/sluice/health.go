package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"time"
)

// maxHealthBody bounds what is read of an answer: only its status counts.
const maxHealthBody = 64 << 10

// healthCmd is what a container without a shell checks its health with.
type healthCmd struct {
	URL     string        `arg:"" name:"url" help:"Address to ask, such as http://127.0.0.1:8080/readyz."`
	Timeout time.Duration `default:"3s" placeholder:"TIME" help:"How long to wait for the answer; default 3s."`
	CAFile  string        `name:"ca-file" placeholder:"FILE" help:"Certificates of the CA (PEM) that an https address is verified by; default: those of the system, and on 127.0.0.1 and ::1 no certificate is verified."`
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
	trust, err := c.trust(u)
	if err != nil {
		return err
	}
	status, err := ask(ctx, c.URL, trust)
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

// trust says which certificates are believed. A program asks the one beside it by an address of this machine, for which
// no CA signs, and of whose certificate only what others call it by can be right.
func (c *healthCmd) trust(u *url.URL) (*tls.Config, error) {
	if c.CAFile != "" {
		text, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, usagef("--ca-file: %s", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, usagef("--ca-file: %s has no certificate in PEM", c.CAFile)
		}
		return &tls.Config{RootCAs: pool}, nil
	}
	addr, err := netip.ParseAddr(u.Hostname())
	return &tls.Config{InsecureSkipVerify: err == nil && addr.IsLoopback()}, nil
}

// ask goes to the address itself: a proxy's health is not the question, and neither is that of where it redirects to.
func ask(ctx context.Context, address string, trust *tls.Config) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	client := &http.Client{
		Transport:     &http.Transport{Proxy: nil, DisableKeepAlives: true, TLSClientConfig: trust},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, maxHealthBody))
	return response.StatusCode, errors.Join(err, response.Body.Close())
}
