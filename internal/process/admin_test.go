package process_test

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sluice/internal/process"
	"sluice/internal/testkit"
)

var operations = regexp.MustCompile(`"api operations" url=(https?://[0-9.:]+)`)

// runAPI runs an api until the test ends, and returns where its operations are served.
func runAPI(t *testing.T, args ...string) string {
	t.Helper()
	at, _ := runAPIOn(t, testkit.PrivateRedis(t), args...)
	return at
}

// runAPIOn is runAPI on a certain Redis. It also returns the log.
func runAPIOn(t *testing.T, redis interface{ URL() string }, args ...string) (string, *testkit.Log) {
	t.Helper()
	return runAPIOver(t, redis, testkit.Database(t), args...)
}

// runAPIOver is runAPIOn a certain database.
func runAPIOver(t *testing.T, redis interface{ URL() string }, database string, args ...string) (string, *testkit.Log) {
	t.Helper()
	cfg := settings(t, redis, database,
		append([]string{"--http-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"}, args...)...)
	log := &testkit.Log{}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- process.RunAPI(ctx, cfg, "test", slog.New(slog.NewTextHandler(log, nil))) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the api: %v\n%s", err, log.String())
		}
	})
	testkit.Eventually(t, time.Minute, "the api to serve", func() bool { return operations.MatchString(log.String()) })
	return operations.FindStringSubmatch(log.String())[1], log
}

// adminTokenFile is a file with adminToken.
func adminTokenFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(adminToken), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const adminToken = "0123456789abcdef0123456789abcdef"

// TestAdminBesideHealth: the admin side needs the token; health, metrics and the explanation of problems do not.
func TestAdminBesideHealth(t *testing.T) {
	t.Parallel()
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	status := func(url, token string) int {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode >= 400 && !strings.HasSuffix(url, "/readyz") &&
			!strings.HasPrefix(response.Header.Get("Content-Type"), "application/problem+json") {
			t.Errorf("%s: got %d as %s, want a problem", url, response.StatusCode, response.Header.Get("Content-Type"))
		}
		return response.StatusCode
	}
	for _, test := range []struct {
		at    string
		token string
		open  int
	}{{runAPI(t, "--admin-token-file", adminTokenFile(t)), adminToken, 200}, {runAPI(t), adminToken, 401}} {
		testkit.Eventually(t, time.Minute, "a new Redis is verified, and the api ready", func() bool {
			return status(test.at+"/readyz", "") == 200
		})
		for _, path := range []string{
			"/healthz", "/metrics", "/", "/problems", "/problems/conflict", "/admin/v1/docs", "/admin/v1/openapi.json",
		} {
			if got := status(test.at+path, ""); got != 200 {
				t.Errorf("%s: got %d, want 200", path, got)
			}
		}
		for _, path := range []string{"/admin/v1/sales", "/admin/v1/dead-letters"} {
			if got := status(test.at+path, test.token); got != test.open {
				t.Errorf("%s with a token: got %d, want %d", path, got, test.open)
			}
			if got := status(test.at+path, ""); got != 401 {
				t.Errorf("%s without a token: got %d, want 401", path, got)
			}
		}
	}
}
