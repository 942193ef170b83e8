package httpapi_test

import (
	"maps"
	"strings"
	"testing"
)

// TestRefusalsOfTheServer: what net/http refuses before any handler runs is a problem document like every other.
func TestRefusalsOfTheServer(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.create(newSale("drop-1", 5))
	before := r.written()
	post := "POST /v1/sales/drop-1/orders HTTP/1.1\r\nHost: x\r\n"
	for name, c := range map[string]struct {
		text   string
		status int
		code   string
	}{
		"control character in the user id": {post + "X-User-Id: a\x01b\r\n\r\n", 400, "invalid-request"},
		"NUL in the user id":               {post + "X-User-Id: a\x00b\r\n\r\n", 400, "invalid-request"},
		"DEL in the user id":               {post + "X-User-Id: a\x7fb\r\n\r\n", 400, "invalid-request"},
		"control character in the key": {
			post + "X-User-Id: bob\r\nIdempotency-Key: \x02\r\n\r\n", 400,
			"invalid-request",
		},
		"space in the sale id": {
			"POST /v1/sales/a b/orders HTTP/1.1\r\nHost: x\r\nX-User-Id: bob\r\n\r\n", 400,
			"invalid-request",
		},
		"NUL in the sale id": {
			"POST /v1/sales/a\x00b/orders HTTP/1.1\r\nHost: x\r\nX-User-Id: bob\r\n\r\n",
			400, "invalid-request",
		},
		"broken escape in the sale id": {
			"POST /v1/sales/a%zz/orders HTTP/1.1\r\nHost: x\r\nX-User-Id: bob\r\n\r\n", 400,
			"invalid-request",
		},
		"braces in the sale id": {
			"POST /v1/sales/{a}/orders HTTP/1.1\r\nHost: x\r\nX-User-Id: bob\r\n\r\n", 404,
			"unknown-sale",
		},
		"no host":                    {"GET /v1/sales HTTP/1.1\r\n\r\n", 400, "invalid-request"},
		"no HTTP":                    {"hello\r\n\r\n", 400, "invalid-request"},
		"another protocol":           {"GET /v1/sales HTTP/3.7\r\nHost: x\r\n\r\n", 400, "invalid-request"},
		"an unknown transfer coding": {post + "Transfer-Encoding: gzip\r\n\r\n", 400, "invalid-request"},
		"headers of 64 KiB": {
			post + "X-User-Id: " + strings.Repeat("u", 64<<10) + "\r\n\r\n", 431,
			"headers-too-large",
		},
		"a negative length": {post + "Content-Length: -1\r\n\r\n", 400, "invalid-request"},
		"two lengths": {
			post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}", 400,
			"invalid-request",
		},
	} {
		got := r.raw(c.text)
		if got.status != c.status || got.code() != c.code {
			t.Errorf("%s: got %d %q, want %d %q\n%s", name, got.status, got.code(), c.status, c.code, got.body)
			continue
		}
		if err := r.contract.checkProblem(got); err != nil {
			t.Errorf("%s: %v\n%s", name, err, got.body)
		}
		if got.header.Get("X-Request-Id") != got.problem().RequestID {
			t.Errorf("%s: X-Request-Id %q, request_id %q", name, got.header.Get("X-Request-Id"), got.problem().RequestID)
		}
	}
	if after := r.written(); !maps.Equal(before, after) {
		t.Errorf("something was written:\nbefore %q\nafter  %q", before, after)
	}
}
