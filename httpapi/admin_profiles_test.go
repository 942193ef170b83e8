package httpapi_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/pipeline/operator"
)

// Profiles are what Go's tools ask for, and only an operator with the role admin gets them.
func TestProfiles(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	admin, operate := r.holding("ann", operator.Admin, time.Hour), r.holding("bob", operator.Operate, time.Hour)
	gzipped := []byte{0x1f, 0x8b}
	for _, test := range []struct {
		path, token string
		status      int
		says        string
	}{
		{"profile?seconds=0.2", "", http.StatusUnauthorized, "unauthenticated"},
		{"profile?seconds=0.2", operate, http.StatusForbidden, "this needs the role admin"},
		{"heap", operate, http.StatusForbidden, "this needs the role admin"},
		{"heap", admin, http.StatusOK, string(gzipped)},
		{"profile?seconds=1", admin, http.StatusOK, string(gzipped)},
		{"trace?seconds=0.1", admin, http.StatusOK, "go 1."},
		{"goroutine?debug=1", admin, http.StatusOK, "goroutine profile"},
		{"", admin, http.StatusOK, "heap"},
		{"nothing", admin, http.StatusNotFound, "Unknown profile"},
		{"profile?seconds=121", admin, http.StatusBadRequest, "seconds"},
		{"profile?seconds=-1", admin, http.StatusBadRequest, "seconds"},
		{"heap?seconds=NaN", admin, http.StatusBadRequest, "seconds"},
	} {
		url := "http://" + r.address + "/debug/pprof/" + test.path
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		must(t, err)
		if test.token != "" {
			request.Header.Set("Authorization", test.token)
		}
		response, err := http.DefaultClient.Do(request)
		must(t, err)
		body, err := io.ReadAll(response.Body)
		must(t, err)
		must(t, response.Body.Close())
		if response.StatusCode != test.status || !bytes.Contains(body, []byte(test.says)) {
			t.Errorf("%s: got %d %.200q, want %d %q", test.path, response.StatusCode, body, test.status, test.says)
		}
		if strings.Contains(string(body), adminToken) {
			t.Errorf("%s: the token is in it", test.path)
		}
	}
}
