package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"sluice/httpapi"
)

func TestLocalOnly(t *testing.T) {
	t.Parallel()
	through := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for _, c := range []struct {
		host, header string
		hosts        []string
		want         int
	}{
		{"localhost:8080", "", nil, 204},
		{"LOCALHOST", "", nil, 204},
		{"localhost.", "", nil, 204},
		{"shop.localhost:80", "", nil, 204},
		{"127.0.0.1:8080", "", nil, 204},
		{"127.8.9.1", "", nil, 204},
		{"[::1]:8080", "", nil, 204},
		{"[::1]", "", nil, 204},
		{"evil.example", "", nil, 403},
		{"evil.example:8080", "", nil, 403},
		{"localhost.evil.example", "", nil, 403},
		{"127.0.0.1.evil.example", "", nil, 403},
		{"10.0.0.1:8080", "", nil, 403},
		{"0.0.0.0:8080", "", nil, 403},
		{"", "", nil, 403},
		{"localhost", "X-Forwarded-For", nil, 403},
		{"localhost", "Forwarded", nil, 403},
		{"localhost", "X-Real-Ip", nil, 403},
		{"localhost", "Via", nil, 403},
		{"localhost", "X-Forwarded-Host", nil, 403},
		{"localhost", "X-Forwarded-Proto", nil, 403},
		{"shop.example", "", []string{"shop.example"}, 204},
		{"Shop.Example:443", "X-Forwarded-For", []string{"shop.example"}, 204},
		{"evil.example", "", []string{"shop.example"}, 403},
	} {
		r := httptest.NewRequest(http.MethodGet, "/v1/sales", http.NoBody)
		r.Host = c.host
		if c.header != "" {
			r.Header.Set(c.header, "203.0.113.1")
		}
		w := httptest.NewRecorder()
		httpapi.LocalOnly(through, c.hosts).ServeHTTP(w, r)
		var p problem
		_ = json.Unmarshal(w.Body.Bytes(), &p) // empty where it was let through
		if w.Code != c.want || c.want == 403 && (p.Code != "local-only" || p.Detail == "" || p.RequestID == "") {
			t.Errorf("Host %q, %q: got %d %+v, want %d", c.host, c.header, w.Code, p, c.want)
		}
	}
}
