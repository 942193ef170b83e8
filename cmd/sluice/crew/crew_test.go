package crew_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/cmd/sluice/crew"
	"sluice/internal/testkit"
)

// A crew starts its members as this binary again.
func TestMain(m *testing.M) {
	if code, served := crew.Serve(os.Args[1:]); served {
		os.Exit(code)
	}
	testkit.Main(m)
}

const startLimit = 3 * time.Minute

func options(environ ...string) crew.Options {
	return crew.Options{Workers: 2, HTTPAddr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0", Environ: append(os.Environ(), environ...)}
}

func TestCrewServesAndStops(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	// Settings of another installation must not reach the members.
	o := options("REDIS_URL=redis://127.0.0.1:1", "DATABASE_URL=postgres://127.0.0.1:1/x", "ADMIN_ADDR=127.0.0.1:1", "LOG_FORMAT=text")
	var mu sync.Mutex
	heard := map[string]int{}
	o.Hear = func(line crew.Line) {
		mu.Lock()
		defer mu.Unlock()
		heard[line.Member]++
	}
	var steps []string
	c, err := crew.Start(ctx, o, func(step string) { steps = append(steps, step) })
	if err != nil {
		t.Fatal(err)
	}
	dir := c.Servers.Dir()
	if got := strings.Join(steps, " "); got != "servers schema programs" {
		t.Errorf("got the steps %q", got)
	}
	for _, address := range []string{c.API.URL() + "/readyz", c.API.AdminURL() + "/metrics", c.Workers[0].AdminURL() + "/readyz"} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s: got %d, want 200", address, response.StatusCode)
		}
	}
	if a, b := c.Workers[0].Consumer(), c.Workers[1].Consumer(); a == "" || a == b || c.API.Consumer() != "" {
		t.Errorf("got the consumers %q and %q, want two names", a, b)
	}
	if err := c.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
	for _, m := range append(c.Workers, c.API) {
		select {
		case <-m.Exited():
		default:
			t.Errorf("%s still runs", m.Name)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left behind", dir)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, name := range []string{"api", "worker-1", "worker-2"} {
		if heard[name] < 2 {
			t.Errorf("heard %d lines of %s", heard[name], name)
		}
	}
}

// A member that can't start is told with its own words, and what had been started is gone.
func TestCrewThatCannotStartLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	for name, test := range map[string]struct {
		options crew.Options
		says    string
	}{
		"a wrong setting": {options("LOCK_TTL=1s"), "LOCK_TTL"},
		"a wrong address": {func() crew.Options {
			o := options()
			o.HTTPAddr = "203.0.113.1:80" // TEST-NET-3: no machine has it
			return o
		}(), "HTTP_ADDR 203.0.113.1:80"},
	} {
		mark := "SLUICE_TEST_MARK=" + t.Name() + name
		test.options.Environ = append(test.options.Environ, mark)
		_, err := crew.Start(ctx, test.options, func(string) {})
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want it to say %q", name, err, test.says)
		}
		environs, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is well formed
		for _, file := range environs {
			if environ, _ := os.ReadFile(file); strings.Contains(string(environ), mark+"\x00") { // it may have ended
				t.Errorf("%s: %s still runs", name, filepath.Dir(file))
			}
		}
	}
}
