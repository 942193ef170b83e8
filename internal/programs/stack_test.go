package programs_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/programs"
	"sluice/internal/testkit"
)

// A stack starts its processes as this binary again.
func TestMain(m *testing.M) {
	if code, served := programs.Serve(os.Args[1:]); served {
		os.Exit(code)
	}
	testkit.Main(m)
}

const startLimit = 3 * time.Minute

func options(environ ...string) programs.Options {
	return programs.Options{
		Workers: 2, HTTPAddr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0",
		Environ: append(os.Environ(), environ...),
	}
}

func TestStackServesAndStops(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	// Settings of another installation must not reach the processes.
	o := options("REDIS_URL=redis://127.0.0.1:1", "DATABASE_URL=postgres://127.0.0.1:1/x", "ADMIN_ADDR=127.0.0.1:1",
		"LOG_FORMAT=text")
	var mu sync.Mutex
	heard := map[string]int{}
	o.OnLine = func(line programs.Line) {
		mu.Lock()
		defer mu.Unlock()
		heard[line.Process]++
	}
	var steps []string
	s, err := programs.Start(ctx, o, func(step string) { steps = append(steps, step) })
	if err != nil {
		t.Fatal(err)
	}
	dir := s.Servers.Dir()
	if got := strings.Join(steps, " "); got != "servers schema programs" {
		t.Errorf("got the steps %q", got)
	}
	for _, address := range []string{
		s.API.URL() + "/readyz", s.API.AdminURL() + "/metrics",
		s.Workers[0].AdminURL() + "/readyz",
	} {
		testkit.Eventually(t, startLimit, address+" answers with 200", func() bool { // a new Redis has to be verified
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			return response.StatusCode == http.StatusOK
		})
	}
	if a, b := s.Workers[0].Consumer(), s.Workers[1].Consumer(); a == "" || a == b || s.API.Consumer() != "" {
		t.Errorf("got the consumers %q and %q, want two names", a, b)
	}
	if err := s.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
	for _, p := range append(s.Workers, s.API) {
		select {
		case <-p.Exited():
		default:
			t.Errorf("%s still runs", p.Name)
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

// A process that can't start is reported in its own words, and what had been started is gone.
func TestStackThatCannotStartLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	taken, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }() // nobody uses it
	for name, test := range map[string]struct {
		options programs.Options
		says    string
	}{
		"a wrong setting": {options("LOCK_TTL=1s"), "LOCK_TTL"},
		"an address that is taken": {func() programs.Options {
			o := options()
			o.HTTPAddr = taken.Addr().String()
			return o
		}(), programs.ErrAddressInUse.Error()},
		"a wrong address": {func() programs.Options {
			o := options()
			o.HTTPAddr = "203.0.113.1:80" // TEST-NET-3: no machine has it
			return o
		}(), "HTTP_ADDR 203.0.113.1:80"},
	} {
		mark := "SLUICE_TEST_MARK=" + t.Name() + name
		test.options.Environ = append(test.options.Environ, mark)
		_, err := programs.Start(ctx, test.options, func(string) {})
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want it to say %q", name, err, test.says)
		}
		if err != nil && strings.Contains(err.Error(), "ADMIN_TOKEN") {
			t.Errorf("%s: a warning is named as a cause: %v", name, err)
		}
		environs, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is well formed
		for _, file := range environs {
			if environ, _ := os.ReadFile(file); strings.Contains(string(environ), mark+"\x00") { // it may have ended
				t.Errorf("%s: %s still runs", name, filepath.Dir(file))
			}
		}
	}
}
