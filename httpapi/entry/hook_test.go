package entry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"sluice/httpapi/entry"
	"sluice/internal/testkit"
)

// shop is a check of a shop's own, on a port of its own.
func shop(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return server.URL
}

// answering is a check that always answers with a status.
func answering(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// asked asks for one ticket at noon, before a sale that opens then, and reports what became of it.
func asked(t *testing.T, o entry.Options) error {
	t.Helper()
	s := newStage(t, o)
	_, err := s.Give(t.Context(), drop(0), entry.Ask{
		UserID: "ann", Client: "203.0.113.7", Proof: "a captcha's answer", RequestID: "r-1",
	})
	return err
}

// What the hook answers decides; what is no answer is decided by the setting.
func TestTheHookDecides(t *testing.T) {
	t.Parallel()
	elsewhere := shop(t, func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") })
	gone := httptest.NewServer(nil)
	gone.Close()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string // allowed, refused, failed; or what the buyer reads
	}{
		"200": {answering(http.StatusOK), "allowed"},
		"204": {answering(http.StatusNoContent), "allowed"},
		"403": {answering(http.StatusForbidden), ""},
		"403 with a reason": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"reason":"Löse das Captcha.","other":1}`)
		}, "Löse das Captcha."},
		"403 with a long reason": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"reason":"`+strings.Repeat("x", 201)+`"}`)
		}, ""},
		"403 with a line break": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"reason":"a\nb"}`)
		}, ""},
		"403 with a page": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "<html>Forbidden</html>")
		}, ""},
		"a very large answer": {func(w http.ResponseWriter, _ *http.Request) {
			for range 1 << 10 {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
			t.Error("all of a very large answer was read")
		}, "allowed"},
		"400": {answering(http.StatusBadRequest), ""},
		"401": {answering(http.StatusUnauthorized), ""},
		"404": {answering(http.StatusNotFound), ""},
		"429": {answering(http.StatusTooManyRequests), ""},
		"500": {answering(http.StatusInternalServerError), "failed"},
		"503": {answering(http.StatusServiceUnavailable), "failed"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
		}, ""},
		"403, broken off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(http.StatusForbidden)
		}, ""},
		"broken off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{}`)
		}, "failed"},
		"no answer": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "failed"},
		"away":      {nil, "failed"},
	} {
		for _, open := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				at := gone.URL
				if c.answer != nil {
					at = shop(t, func(w http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(io.Discard, r.Body) // or the server doesn't see that the caller has left
						c.answer(w, r)
					})
				}
				timeout := time.Minute / 20 // for those that answer
				if name == "no answer" {
					timeout = 100 * time.Millisecond
				}
				var log bytes.Buffer
				err := asked(t, entry.Options{
					Hook: entry.HookOptions{URL: at, Timeout: timeout, FailOpen: open}, Log: slog.New(slog.NewTextHandler(&log, nil)),
				})
				refused, isRefused := errors.AsType[*entry.Refused](err)
				switch {
				case c.want == "allowed" || c.want == "failed" && open:
					must(t, err)
				case c.want == "failed":
					if !errors.Is(err, entry.ErrNoAnswer) {
						t.Errorf("got %v, want no answer", err)
					}
				case !isRefused || refused.Reason != c.want:
					t.Errorf("got %v, want a refusal because of %q", err, c.want)
				}
				if logged := strings.Contains(log.String(), "gave no answer"); logged != (c.want == "failed") {
					t.Errorf("logged %q", log.String())
				}
			})
		}
	}
}

// The hook gets what it decides about, and who asks, and no URL gets into the log.
func TestWhatTheHookGets(t *testing.T) {
	t.Parallel()
	var got map[string]string
	var user, password string
	at := shop(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" || r.URL.Path != "/entry" {
			t.Errorf("got %s %s, %v", r.Method, r.URL, r.Header)
		}
		user, password, _ = r.BasicAuth()
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	var log bytes.Buffer
	_ = asked(t, entry.Options{
		Hook: entry.HookOptions{URL: strings.Replace(at, "//", "//sluice:hunter2@", 1) + "/entry"},
		Log:  slog.New(slog.NewTextHandler(&log, nil)),
	})
	if got["sale_id"] != "drop-1" || got["user_id"] != "ann" || got["client_address"] != "203.0.113.7" ||
		got["proof"] != "a captcha's answer" || got["request_id"] != "r-1" || len(got) != 5 {
		t.Errorf("got %v", got)
	}
	if user != "sluice" || password != "hunter2" {
		t.Errorf("authenticated as %q with %q", user, password)
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	_ = asked(t, entry.Options{
		Hook: entry.HookOptions{URL: gone.URL + "/hunter2"}, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	// A slash in a password that is not escaped: what is before it looks like a host.
	for _, url := range []string{"http://hunter2.invalid:12/34@shop.example.com/", "http://ann:hunter2@hunter2.invalid/"} {
		_ = asked(t, entry.Options{Hook: entry.HookOptions{URL: url}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	}
	if text := log.String(); !strings.Contains(text, "connection refused") ||
		!strings.Contains(text, "can't be resolved") || !strings.Contains(text, "it answered 503") ||
		strings.Contains(text, "hunter2") {
		t.Errorf("the log has %s", text)
	}
}

// Only so many calls are under way at once, whatever comes, and only so many wait. What waits for longer than the
// timeout gets no answer, and what is more than that fails at once.
func TestTheHookIsNotFlooded(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{false, true} {
		t.Run(fmt.Sprintf("fail open %t", open), func(t *testing.T) {
			t.Parallel()
			flood(t, open)
		})
	}
}

// flood asks for more tickets than the hook can be asked for. Those that waited for the hook in vain are given what the
// setting says; those that are too many get none.
func flood(t *testing.T, open bool) {
	t.Helper()
	var mu sync.Mutex // protects now and most
	now, most := 0, 0
	release := make(chan struct{})
	at := shop(t, func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		<-release
		mu.Lock()
		now--
		mu.Unlock()
	})
	end := sync.OnceFunc(func() { close(release) })
	t.Cleanup(end) // before the server is closed, which waits for its answers
	reg := prometheus.NewRegistry()
	hook := entry.HookOptions{URL: at, Timeout: entry.MaxHookTimeout, FailOpen: open}
	s := newStage(t, entry.Options{Hook: hook, Metrics: reg})
	const tooMany = 100
	var given atomic.Int64
	var running sync.WaitGroup
	for range entry.MaxHookWaiting + tooMany {
		running.Go(func() {
			_, err := s.Give(t.Context(), drop(0), entry.Ask{UserID: "ann"})
			switch {
			case err == nil:
				given.Add(1)
			case !errors.Is(err, entry.ErrNoAnswer):
				t.Errorf("got %v, want no answer", err)
			}
		})
	}
	failed := func() float64 { return counted(t, reg, "sluice_entry_tickets_total", "failed") }
	underWay := func() int {
		mu.Lock()
		defer mu.Unlock()
		return most
	}
	testkit.Eventually(t, entry.MaxHookTimeout, "as many calls as may be, and what is too many to fail at once",
		func() bool { return failed() >= tooMany && underWay() >= entry.MaxHookCalls })
	if got := failed(); got != tooMany {
		t.Errorf("%v failed at once, want %d", got, tooMany)
	}
	if got := underWay(); got != entry.MaxHookCalls {
		t.Errorf("%d calls at once, want %d", got, entry.MaxHookCalls)
	}
	running.Wait()
	end()
	if n := testutil.CollectAndCount(reg, "sluice_entry_hook_seconds"); n != 2 { // failed and busy
		t.Errorf("%d answers are counted", n)
	}
	waited := int64(0)
	if open {
		waited = entry.MaxHookWaiting
	}
	if got := failed(); given.Load() != waited || got != float64(entry.MaxHookWaiting+tooMany-waited) {
		t.Errorf("%d tickets were given, want %d; counted %v failed", given.Load(), waited, got)
	}
}

// counted is a counter with a label, as an operator reads it.
func counted(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := reg.Gather()
	must(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func TestEveryResultIsCounted(t *testing.T) {
	t.Parallel()
	status := 204
	at := shop(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	reg := prometheus.NewRegistry()
	s, sale := newStage(t, entry.Options{Hook: entry.HookOptions{URL: at}, Metrics: reg}), drop(0)
	s.at = noon.Add(-time.Minute)
	text := s.give(t, sale, "ann").Text
	for _, status = range []int{403, 500} {
		if _, err := s.Give(t.Context(), sale, entry.Ask{UserID: "ann"}); err == nil {
			t.Errorf("given at %d", status)
		}
	}
	_ = s.Check(sale, "ann", text) // early
	s.at = noon
	for user, text := range map[string]string{"ann": text, "bob": text, "cy": "", "dee": "nonsense"} {
		_ = s.Check(sale, user, text)
	}
	s.at = noon.Add(entry.Life)
	_ = s.Check(sale, "ann", text)
	must(t, s.ring.Replace([]entry.Key{keyOf("k2", 2)}))
	_ = s.Check(sale, "ann", text)
	must(t, s.ring.Replace(nil))
	_ = s.Check(sale, "ann", text)
	for name, labels := range map[string][]string{
		"sluice_entry_tickets_total": {"given", "refused", "failed"},
		"sluice_entry_checks_total": {
			"passed", "missing", "early", "malformed", "unknown-key", "forged", "expired", "no-keys",
		},
	} {
		for _, label := range labels {
			if got := counted(t, reg, name, label); got != 1 {
				t.Errorf("%s{%s}: got %v, want 1", name, label, got)
			}
		}
	}
}

func TestHookOptions(t *testing.T) {
	t.Parallel()
	for _, wrong := range []entry.HookOptions{
		{URL: "ftp://u:hunter2@shop"},
		{URL: "shop.example.com/hunter2"},
		{URL: "http://"},
		{URL: "http://%zz:hunter2@x"},
		{URL: "http://shop", Timeout: 5 * time.Second},
		{Timeout: -time.Second},
	} {
		if err := wrong.Validate(); err == nil {
			t.Errorf("%+v: taken", wrong)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error repeats a secret: %v", err)
		}
		if _, err := entry.NewService(entry.Options{Hook: wrong}); err == nil {
			t.Errorf("%+v: a service was made", wrong)
		}
	}
	must(t, entry.HookOptions{}.Validate())
	must(t, entry.HookOptions{URL: "https://shop.example.com/entry", Timeout: time.Second}.Validate())
}

// A slow check makes nobody late who asked in time.
func TestASlowCheckCostsNoPlace(t *testing.T) {
	t.Parallel()
	var s *stage
	at := shop(t, func(http.ResponseWriter, *http.Request) { s.at = noon.Add(time.Second) })
	s = newStage(t, entry.Options{Hook: entry.HookOptions{URL: at}})
	s.at = noon.Add(-time.Millisecond)
	if given := s.give(t, drop(10*time.Second), "ann"); !given.NotBefore.Before(noon.Add(10 * time.Second)) {
		t.Errorf("let in at %s, like one who came late", given.NotBefore)
	}
}
