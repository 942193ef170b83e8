package loadgen

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"testing"
)

// What is written by hand must be what a server reads.
func TestTemplateIsARequest(t *testing.T) {
	t.Parallel()
	c := Config{
		URL: "http://127.0.0.1:1", Sales: []string{"drop-1"}, Keys: true, Quantity: 2,
		Headers: map[string]string{"X-Extra": "a b"},
	}.withDefaults()
	to, err := targetOf(c.URL)
	if err != nil {
		t.Fatal(err)
	}
	text := newTemplate(&c, to, "drop-1").fill(nil, 7, 1)
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	buyer := BuyerID(7, 1)
	got := []string{
		r.Method, r.URL.Path, r.Host, r.Header.Get("X-User-Id"), r.Header.Get("Idempotency-Key"), r.Header.Get("X-Extra"),
		string(body),
	}
	want := []string{"POST", "/v1/sales/drop-1/orders", "127.0.0.1:1", buyer, "order-" + buyer, "a b", `{"quantity":2}`}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
}

func TestBuyersAreAllDifferent(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for n := range uint64(100_000) {
		seen[BuyerID(3, n)] = true
	}
	if len(seen) != 100_000 {
		t.Errorf("got %d ids of 100000 buyers", len(seen))
	}
	if BuyerID(3, 1) == BuyerID(4, 1) {
		t.Error("two seeds make the same buyer")
	}
}
