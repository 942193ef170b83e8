package faultnet_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/internal/faultnet"
	"sluice/internal/testkit"
)

// httpServer answers with its name and counts requests.
type httpServer struct {
	*httptest.Server
	requests atomic.Int64
}

func newHTTPServer(t *testing.T, name string) *httpServer {
	t.Helper()
	s := &httpServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.requests.Add(1)
		_, _ = io.WriteString(w, name)
	}))
	t.Cleanup(s.Close)
	return s
}

func ask(t *testing.T, client *http.Client, url string) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(within(t, soon), http.MethodPost, url, nil)
	check(t, err)
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func TestRetargetLeadsToAnotherServer(t *testing.T) {
	t.Parallel()
	old, other := newHTTPServer(t, "old"), newHTTPServer(t, "other")
	proxy := listen(t, old.URL)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	url := proxy.URL()
	if got, err := ask(t, client, url); got != "old" {
		t.Fatalf("got %q, %v, want the first server", got, err)
	}
	check(t, proxy.Retarget(other.URL))
	testkit.Eventually(t, soon, "the other server's answer", func() bool { // the first may still see the broken connection
		got, _ := ask(t, client, url)
		return got == "other"
	})
	if old.requests.Load() != 1 || proxy.URL() != url {
		t.Errorf("the first server was asked %d times, want once; the URL is %s, want %s",
			old.requests.Load(), proxy.URL(), url)
	}
	if err := proxy.Retarget("ftp://h"); err == nil {
		t.Error("a proxy went before a server of an unknown kind")
	}
}

func TestALostAnswerOfHTTPWasExecuted(t *testing.T) {
	t.Parallel()
	s := newHTTPServer(t, "done")
	proxy, err := faultnet.Listen(s.URL)
	check(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	proxy.DropReplies(1)
	if got, err := ask(t, client, proxy.URL()); err == nil {
		t.Errorf("got the answer %q, want none", got)
	}
	if s.requests.Load() != 1 || proxy.Lost() != 1 {
		t.Errorf("the server was asked %d times and %d answers were lost, want 1 and 1", s.requests.Load(), proxy.Lost())
	}
	if got, err := ask(t, client, proxy.URL()); got != "done" {
		t.Errorf("got %q, %v, want the next answer to arrive", got, err)
	}
}

func TestRepliesAreKeptAgain(t *testing.T) {
	t.Parallel()
	pair := newRedisPair(t)
	pair.proxy.DropReplies(3)
	pair.proxy.DropReplyTo("get", 3)
	pair.proxy.KeepReplies()
	if err := pair.through.Get(within(t, soon), pair.key).Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("got %v, want redis.Nil: the fault was taken back", err)
	}
}
