package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"sluice/internal/buyers"
)

// shop is an API in small: it accepts up to its stock, one order per buyer, and can be made to misbehave.
type shop struct {
	stock    int
	busy     int  // so many requests are refused first
	twice    bool // gives a buyer who comes again a second order
	mu       sync.Mutex
	accepted map[string]string // buyer → order id
	keys     map[string]string // buyer → key of the accepted request
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	buyer, key := r.Header.Get("X-User-Id"), r.Header.Get("Idempotency-Key")
	id, known := s.accepted[buyer]
	switch {
	case s.busy > 0:
		s.busy--
		reply(w, http.StatusServiceUnavailable, "overloaded", "")
	case known && s.twice:
		s.accepted[buyer] = id + "-again"
		reply(w, http.StatusAccepted, "", id+"-again")
	case known && s.keys[buyer] == key:
		reply(w, http.StatusAccepted, "", id)
	case known:
		reply(w, http.StatusConflict, "already-ordered", id)
	case len(s.accepted) == s.stock:
		reply(w, http.StatusConflict, "sold-out", "")
	default:
		s.accepted[buyer], s.keys[buyer] = "order-"+strconv.Itoa(len(s.accepted)), key
		reply(w, http.StatusAccepted, "", s.accepted[buyer])
	}
}

func reply(w http.ResponseWriter, status int, code, orderID string) {
	w.WriteHeader(status)
	answer := map[string]any{"code": code, "order_id": orderID}
	if status == http.StatusAccepted {
		number := "1" + strings.Trim(orderID, "-adeginor") // the digits of the id
		answer["status"], answer["order_number"], answer["quantity"] = "queued", number, 1
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func open(t *testing.T, s *shop) crowd {
	t.Helper()
	s.accepted, s.keys = map[string]string{}, map[string]string{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return crowd{api: server.URL, sale: "drop-1", buyers: 40, requests: 100, clients: 8, perSecond: 10_000, seed: 1}
}

func TestCrowdBuysTheStock(t *testing.T) {
	t.Parallel()
	s := &shop{stock: 25, busy: 3}
	history, err := open(t, s).order(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := check(history); err != nil {
		t.Error(err)
	}
	tally := history.Tally()
	if got, want := tally.Orders, 25; got != want {
		t.Errorf("accepted: got %d, want %d", got, want)
	}
	if got, want := tally.Requests-tally.Outcomes[buyers.NoAnswer], 100; got != want {
		t.Errorf("answers counted: got %d, want %d", got, want)
	}
	if got, want := tally.Repeated, 3; got != want {
		t.Errorf("sent again: got %d, want %d", got, want)
	}
	file := filepath.Join(t.TempDir(), "accepted")
	if err := write(history, file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Count(string(text), "\n"), 25; got != want {
		t.Errorf("ids written: got %d, want %d", got, want)
	}
}

func TestCrowdNoticesASecondOrder(t *testing.T) {
	t.Parallel()
	history, err := open(t, &shop{stock: 40, twice: true}).order(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := check(history); err == nil {
		t.Error("a buyer with two orders was not noticed")
	}
}

func TestPlanBringsEveryBuyer(t *testing.T) {
	t.Parallel()
	c := crowd{buyers: 50, requests: 200, seed: 7}
	seen, repeats, others := map[uint32]bool{}, 0, 0
	for _, r := range c.plan() {
		seen[r.Buyer] = true
		if r.Key == 0 {
			repeats++
		} else {
			others++
		}
	}
	if got, want := len(seen), 50; got != want {
		t.Errorf("buyers: got %d, want %d", got, want)
	}
	if repeats-50 != others {
		t.Errorf("got %d repeated requests and %d second ones, want as many of each", repeats-50, others)
	}
}

func TestCrowdWaitsForTheSpur(t *testing.T) {
	t.Parallel()
	c := crowd{requests: 100, perSecond: 500, spur: filepath.Join(t.TempDir(), "spur")}
	for _, step := range []struct {
		sent int
		want float64
	}{{0, 500}, {39, 500}, {40, slowPerSecond}, {99, slowPerSecond}} {
		if got := c.rate(step.sent); got != step.want {
			t.Errorf("rate after %d: got %v, want %v", step.sent, got, step.want)
		}
	}
	if err := os.WriteFile(c.spur, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := c.rate(40), 500.0; got != want {
		t.Errorf("rate after the spur: got %v, want %v", got, want)
	}
}
