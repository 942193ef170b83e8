package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"sluice/db"
	"sluice/internal/loadgen"
	"sluice/internal/process"
	"sluice/internal/programs"
	"sluice/pipeline"
	"sluice/pipeline/recovery"
)

const (
	adminToken    = "neighbours-0123456789abcdef0123456789abcdef"
	webhookSecret = "whsec_" + "bmVpZ2hib3Vycy1uZWlnaGJvdXJzLW5laWdoYm91cnM=" //nolint:gosec // of a private stack
	honestSale    = "honest"
	soldOutSale   = "gone"
	stopLimit     = 30 * time.Second
	callLimit     = 30 * time.Second
)

// stage is the stack under attack.
type stage struct {
	options
	stack *programs.Stack
	next  uint64 // the first buyer of the next measurement
}

func open(ctx context.Context, o options) (*stage, error) {
	stack, err := programs.Start(ctx, programs.Options{
		Workers: 1, HTTPAddr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0",
		Environ: append(programs.Environ(), "ADMIN_TOKEN="+adminToken, "PAYMENT_WEBHOOK_SECRET="+webhookSecret,
			"RATE_LIMIT_CLIENT="+o.limit, "MAX_CONNECTIONS_PER_CLIENT="+o.perClient),
	}, func(string) {})
	if err != nil {
		return nil, err
	}
	s := &stage{options: o, stack: stack}
	store, err := db.Open(ctx, stack.Config.DatabaseURL, db.Options{ApplicationName: "sluice-neighbours"})
	if err != nil {
		return s, err
	}
	defer store.Close()
	rdb, err := process.OpenRedis(stack.Config)
	if err != nil {
		return s, err
	}
	defer func() { _ = rdb.Close() }() // it only looked
	if err := recovery.EnsureVerified(ctx, rdb, pipeline.DefaultKeys, store, stack.Config.Partitions,
		slog.New(slog.DiscardHandler)); err != nil {
		return s, err
	}
	for id, total := range map[string]int{honestSale: 5_000_000, soldOutSale: 1} {
		if err := s.createSale(ctx, id, total); err != nil {
			return s, err
		}
	}
	return s, s.post(ctx, s.stack.API.URL()+"/v1/sales/"+soldOutSale+"/orders", nil, "X-User-Id", "first")
}

func (s *stage) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	return s.stack.Stop(ctx)
}

func (s *stage) createSale(ctx context.Context, id string, total int) error {
	now := time.Now()
	body, err := json.Marshal(map[string]any{
		"id": id, "title": id, "total": total, "opens_at": now.Add(-time.Hour), "closes_at": now.Add(24 * time.Hour),
		"payment_window_seconds": 3600,
	})
	if err != nil {
		return err
	}
	return s.post(ctx, s.stack.API.AdminURL()+"/admin/v1/sales", body, "Authorization", "Bearer "+adminToken)
}

func (s *stage) post(ctx context.Context, url string, body []byte, header, value string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set(header, value)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := (&http.Client{Timeout: callLimit}).Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode >= http.StatusBadRequest {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 4096))
		return fmt.Errorf("POST %s: %s: %s", url, answer.Status, text)
	}
	return nil
}

// honest is how long buyers waited who come at a steady rate; all of them must get an order.
func (s *stage) honest(ctx context.Context) (loadgen.Latency, error) {
	const connections = 16
	g, err := loadgen.Open(ctx, loadgen.Config{
		URL: s.stack.API.URL(), Sales: []string{honestSale}, Connections: connections, Rate: s.rate,
		WarmUp: time.Second, Length: time.Duration(s.seconds) * time.Second, Seed: 7, First: s.next,
	})
	if err != nil {
		return loadgen.Latency{}, err
	}
	defer g.Close()
	s.next += 1_000_000
	result, err := g.Run(ctx)
	if err == nil && (result.Accepts.Count == 0 || result.Accepts.Count != result.Counted() || result.NotSent > 0) {
		err = fmt.Errorf("of the honest buyers %d got an order, %d did not, %d could not be sent: %+v",
			result.Accepts.Count, result.Counted()-result.Accepts.Count, result.NotSent, result.Outcomes)
	}
	return result.Accepts, err
}

// child is the attacker's process.
type child struct {
	cmd *exec.Cmd
	out bytes.Buffer
}

func (s *stage) attack(ctx context.Context, kind string) (*child, error) {
	target, err := json.Marshal(target{
		Kind: kind, URL: s.stack.API.URL(), Admin: s.stack.API.AdminURL(), Connections: s.connections,
	})
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self, "-attack", string(target))}
	c.cmd.Stdout, c.cmd.Stderr = &c.out, os.Stderr
	return c, c.cmd.Start()
}

// stop ends the attack, and says what the attacker was answered.
func (c *child) stop() (string, error) {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return "", err
	}
	if err := c.cmd.Wait(); err != nil {
		return "", errors.Join(errors.New("the attacker failed"), err)
	}
	return strings.TrimSpace(c.out.String()), nil
}
