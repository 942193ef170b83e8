package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	for path, status := range map[string]int{"/ok": 200, "/empty": 204, "/down": 503, "/gone": 404} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	}
	mux.Handle("GET /moved", http.RedirectHandler("/ok", http.StatusFound))
	stuck := make(chan struct{})
	mux.HandleFunc("GET /stuck", func(http.ResponseWriter, *http.Request) { <-stuck })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(stuck) })

	for path, code := range map[string]int{"/ok": 0, "/empty": 0, "/down": 1, "/gone": 1, "/moved": 1, "/stuck": 1} {
		// A proxy in the environment must not answer for the server.
		got := sluice(t, []string{"HTTP_PROXY=http://127.0.0.1:1"}, "health", server.URL+path, "--timeout", "2s")
		if got.code != code {
			t.Errorf("%s: got exit code %d, want %d\n%s", path, got.code, code, got.err)
		}
	}
	sluice(t, nil, "health", "http://127.0.0.1:1/").mustRefuse(t, 1, "does not answer")
}
