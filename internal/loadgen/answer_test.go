package loadgen

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestReadAnswer(t *testing.T) {
	t.Parallel()
	const several = "HTTP/1.1 202 Accepted\r\nContent-Type: application/json\r\ncontent-length:  3\r\n\r\nabc" +
		"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n" +
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n" +
		"HTTP/1.1 409 Conflict\r\nContent-Length: 32\r\n\r\n{\"status\":409,\"code\":\"sold-out\"}" +
		"HTTP/1.1 409 Conflict\r\nTransfer-Encoding: chunked\r\n\r\n13\r\n{\"code\": \"too-late\"\r\n1\r\n}\r\n0\r\n\r\n" +
		"HTTP/1.1 500 Oops\r\nConnection: close\r\nContent-Length: 4\r\n\r\noops"
	r := bufio.NewReader(strings.NewReader(several))
	for _, want := range []answer{
		{status: 202},
		{status: 503},
		{status: 204},
		{status: 409, code: "sold-out"},
		{status: 409, code: "too-late"},
		{status: 500, last: true},
	} {
		if got, err := readAnswer(r); err != nil || got != want {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	}
	if _, err := readAnswer(r); !errors.Is(err, io.EOF) {
		t.Errorf("after the last answer: got %v, want EOF", err)
	}
}

func TestBrokenAnswersAreErrors(t *testing.T) {
	t.Parallel()
	for _, broken := range []string{
		"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 2x2 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 9\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", "HTTP/1.1 200 OK\r\nContent-", "HTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7fffffff\r\nabc",
		"HTTP/1.1 409 Conflict\r\nContent-Length: 50\r\n\r\n{}",
	} {
		if a, err := readAnswer(bufio.NewReader(strings.NewReader(broken))); err == nil {
			t.Errorf("%q: got %+v and no error", broken, a)
		}
	}
}

func TestCodeOf(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"type":"x","code":"sold-out","status":409}`: "sold-out", `{"code": "a"}`: "a", `{"code":7}`: "", `{"code":"`: "",
		`nothing`: "", ``: "", `{"code":"` + strings.Repeat("x", 100) + `"}`: "", `{"code":`: "",
	} {
		if got := codeOf([]byte(body)); got != want {
			t.Errorf("%s: got %q, want %q", body, got, want)
		}
	}
}
