package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestReadAnswer(t *testing.T) {
	const two = "HTTP/1.1 202 Accepted\r\nContent-Type: application/json\r\ncontent-length:  3\r\n\r\nabc" +
		"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
	r := bufio.NewReader(strings.NewReader(two))
	for _, want := range []int{202, 503} {
		if got, err := readAnswer(r); err != nil || got != want {
			t.Fatalf("got %d, %v, want %d", got, err, want)
		}
	}
	if _, err := readAnswer(r); !errors.Is(err, io.EOF) {
		t.Errorf("after the last answer: got %v, want EOF", err)
	}
	for _, broken := range []string{
		"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 2x2 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 9\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", "HTTP/1.1 200 OK\r\nContent-",
	} {
		if status, err := readAnswer(bufio.NewReader(strings.NewReader(broken))); err == nil {
			t.Errorf("%q: got %d and no error", broken, status)
		}
	}
}

// What is written by hand must be what a server reads.
func TestOrderRequest(t *testing.T) {
	next := &load{Addr: "127.0.0.1:1", Path: ordersPath, Connections: 2, Seed: 7, Keys: true}
	c := newConnection(nil, next, 1)
	for _, place := range c.ids {
		writeBuyer(place, c.seed, c.buyer)
	}
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(c.request)))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	buyer := buyerID(7, 1)
	got := []string{r.Method, r.URL.Path, r.Header.Get("X-User-Id"), r.Header.Get("Idempotency-Key"), string(body)}
	want := []string{"POST", ordersPath, buyer, "order-" + buyer, `{"quantity":1}`}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
}

func TestBuyersAreAllDifferent(t *testing.T) {
	seen := map[string]bool{}
	for n := range uint64(100_000) {
		seen[buyerID(3, n)] = true
	}
	if len(seen) != 100_000 {
		t.Errorf("got %d ids of 100000 buyers", len(seen))
	}
	if buyerID(3, 1) == buyerID(4, 1) {
		t.Error("two seeds make the same buyer")
	}
}

func TestTallyAccepted(t *testing.T) {
	if n, err := (&loadResult{Statuses: map[int]int64{202: 5}}).answered(202); n != 5 || err != nil {
		t.Errorf("got %d, %v, want 5", n, err)
	}
	for _, statuses := range []map[int]int64{nil, {409: 1}, {202: 5, 503: 1}} {
		if _, err := (&loadResult{Statuses: statuses}).answered(202); err == nil {
			t.Errorf("%v: no error", statuses)
		}
	}
}
