package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// counted is a server that remembers the buyers that it saw.
func counted(t *testing.T) (addr string, seen func() map[string]int) {
	var mu sync.Mutex // protects buyers
	buyers := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		buyers[r.Header.Get("X-User-Id")]++
		mu.Unlock()
		w.Header().Set("Content-Length", "2")
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte("{}")) // the test counts what was answered
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://"), func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return buyers
	}
}

func TestFloodCountsEveryAnswerAndNoBuyerComesTwice(t *testing.T) {
	for _, rate := range []float64{0, 400} {
		t.Run(fmt.Sprintf("rate=%g", rate), func(t *testing.T) { testFlood(t, rate) })
	}
}

func testFlood(t *testing.T, rate float64) {
	addr, seen := counted(t)
	tally := send(t, &load{
		Addr: addr, Path: ordersPath, Connections: 4, Length: time.Second, Rate: rate, Seed: 1,
	})
	accepted, err := tally.answered(202)
	if err != nil {
		t.Fatal(err)
	}
	if got := int64(len(seen())); got != accepted {
		t.Errorf("the server saw %d buyers, the buyers saw %d answers", got, accepted)
	}
	if rate > 0 && (accepted < 20 || accepted > 1000) { // 400 on average; a busy machine may not get to all of them
		t.Errorf("got %d requests", accepted)
	}
	if tally.Latency.P50 <= 0 || tally.Latency.Max < tally.Latency.P99 {
		t.Errorf("waiting times %+v", tally.Latency)
	}
}

// send runs a load in this process.
func send(t *testing.T, f *load) loadResult {
	t.Helper()
	connections, err := f.connections()
	if err != nil {
		t.Fatal(err)
	}
	defer connections.close()
	tally, err := connections.run(f)
	if err != nil {
		t.Fatal(err)
	}
	return tally
}

// A server that stalls must show in the waiting times of those who were due meanwhile, not only of the one who was
// there.
func TestArrivalsCountFromWhenTheyWereDue(t *testing.T) {
	const stall = 100 * time.Millisecond
	var once sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		once.Do(func() { time.Sleep(stall) }) // this is the server's own slowness
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusAccepted)
	}))
	defer server.Close()
	tally := send(t, &load{
		Addr: strings.TrimPrefix(server.URL, "http://"), Path: ordersPath, Connections: 1,
		Length: 200 * time.Millisecond, Rate: 500, Seed: 1,
	})
	// Half of the arrivals fall into the stall, so a tenth of all waits nearly as long as it lasts.
	if got := tally.Latency.P90; got < 50_000 {
		t.Errorf("p90: got %.0f µs, want more than half of the stall", got)
	}
}
