package httpapi

import (
	"context"
	"encoding/json"
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
	readyMaxAge = 500 * time.Millisecond
)

// Check is one thing that must work before requests should be sent here. Run returns nil when it does; it must end when
// its context does. Its error is logged; clients are shown the message of a *pipeline.Error and nothing of others.
type Check struct {
	Name string
	Run  func(ctx context.Context) error
	// Optional: requests may be sent here although it does not work; the answer tells of it all the same.
	Optional bool
}

type checkView struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`
	Required bool   `json:"required"`
	Detail   string `json:"detail,omitempty"`
}

type readyView struct {
	Status string      `json:"status"` // ready or not-ready
	Checks []checkView `json:"checks"`
}

// Readiness answers whether requests should be sent here, by running checks, once at a time.
type Readiness struct {
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
	view := a.Ready.view(c.Request().Context())
	if view.Status != ready {
		c.Response().Header()[headerRetryAfter] = oneSecond
	}
	return sendJSON(c, view.status(), view)
}

// NewReadiness returns a Readiness that has asked nothing yet.
func NewReadiness(log *slog.Logger, checks ...Check) *Readiness {
	return &Readiness{checks: checks, log: log}
}

// ServeHTTP is the same answer on the operations side of a process.
func (r *Readiness) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	view := r.view(request.Context())
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(view.status())
	_ = json.NewEncoder(w).Encode(view) // the client has gone
}

const ready = "ready"

func (v readyView) status() int {
	if v.Status == ready {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

func (a *api) version(c echo.Context) error {
	return sendJSON(c, http.StatusOK, a.Version)
}

func (r *Readiness) view(ctx context.Context) readyView {
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

func (r *Readiness) run(ctx context.Context) readyView {
	view := readyView{Status: ready, Checks: make([]checkView, len(r.checks))}
	var running sync.WaitGroup
	for i, check := range r.checks {
		running.Go(func() { view.Checks[i] = r.one(ctx, check) })
	}
	running.Wait()
	for _, check := range view.Checks {
		if !check.OK && check.Required {
			view.Status = "not-ready"
		}
	}
	return view
}

func (r *Readiness) one(ctx context.Context, check Check) checkView {
	err := check.Run(ctx)
	if err == nil {
		return checkView{Name: check.Name, OK: true, Required: !check.Optional}
	}
	r.log.Warn("not ready", "check", check.Name, "error", err)
	detail := "failed"
	if pipeline.KindOf(err) != "" {
		detail = messageOf(err)
	}
	return checkView{Name: check.Name, Required: !check.Optional, Detail: detail}
}
