package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"sluice/pipeline"
)

const (
	readyTimeout = 2 * time.Second // all checks together; probes usually wait a few seconds
	// how long an answer is reused: the route is open to all, and the stores should not notice
	readyMaxAge = time.Second
)

// Check is one thing that must work before requests should be sent here. Run returns nil when it does; it must end when
// its context does. Its error is logged; clients are shown the message of a *pipeline.Error and nothing of others.
type Check struct {
	Name string
	Run  func(ctx context.Context) error
}

type checkView struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

type readyView struct {
	Status string      `json:"status"` // ready or not-ready
	Checks []checkView `json:"checks"`
}

// readiness runs the checks, once at a time.
type readiness struct {
	checks []Check
	log    *slog.Logger

	mu    sync.Mutex // protects the two below; held while checks run, so that concurrent requests share one answer
	last  readyView
	until time.Time
}

// health says that the process answers. It asks no store: restarting the process would not repair one.
func (a *api) health(c echo.Context) error {
	return sendJSON(c, http.StatusOK, map[string]string{"status": "ok"})
}

// ready says whether requests should be sent here.
func (a *api) ready(c echo.Context) error {
	view := a.readiness.view(c.Request().Context())
	status := http.StatusOK
	if view.Status != "ready" {
		status = http.StatusServiceUnavailable
		c.Response().Header()[headerRetryAfter] = oneSecond
	}
	return sendJSON(c, status, view)
}

func (a *api) version(c echo.Context) error {
	return sendJSON(c, http.StatusOK, a.Version)
}

func (r *readiness) view(ctx context.Context) readyView {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Now().Before(r.until) {
		return r.last
	}
	// Detached: the answer serves all requests that wait for it, not only the first.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
	defer cancel()
	r.last = r.run(ctx)
	r.until = time.Now().Add(readyMaxAge)
	return r.last
}

func (r *readiness) run(ctx context.Context) readyView {
	view := readyView{Status: "ready", Checks: make([]checkView, len(r.checks))}
	var running sync.WaitGroup
	for i, check := range r.checks {
		running.Go(func() { view.Checks[i] = r.one(ctx, check) })
	}
	running.Wait()
	for _, check := range view.Checks {
		if !check.OK {
			view.Status = "not-ready"
		}
	}
	return view
}

func (r *readiness) one(ctx context.Context, check Check) checkView {
	err := check.Run(ctx)
	if err == nil {
		return checkView{Name: check.Name, OK: true}
	}
	r.log.Warn("not ready", "check", check.Name, "error", err)
	detail := "failed"
	if pipeline.KindOf(err) != "" {
		detail = messageOf(err)
	}
	return checkView{Name: check.Name, Detail: detail}
}
