package loadgen

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// load is a load of a second for a handler.
func load(t *testing.T, h http.HandlerFunc) Config {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return Config{
		URL: server.URL, Sales: []string{"drop-1"}, Connections: 4, Rate: 500, Length: time.Second, Seed: 1,
	}
}

func run(t *testing.T, c Config) Result {
	t.Helper()
	g, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	result, err := g.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func accept(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "2")
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write([]byte("{}")) // the test counts what was answered
}

// A server that stalls must show in the waiting times of all who were due meanwhile, not only of those who were there.
// A fifth of the buyers is due during the stall, so a tenth waits for more than half of it. If times counted from when
// a request was sent, only the four on the connections would.
func TestAStallCountsForEverybodyWhoWasDue(t *testing.T) {
	t.Parallel()
	const stall = 200 * time.Millisecond
	var served atomic.Int64
	var gate sync.RWMutex // held while the server stalls
	result := run(t, load(t, func(w http.ResponseWriter, r *http.Request) {
		if served.Add(1) == 100 {
			gate.Lock()
			time.Sleep(stall) // this is the server's own slowness
			gate.Unlock()
		}
		gate.RLock()
		defer gate.RUnlock()
		accept(w, r)
	}))
	if got, least := result.Accepts.P90, float64(stall.Microseconds())/4; got < least {
		t.Errorf("p90: got %.0f µs, want at least a quarter of the stall, %.0f µs", got, least)
	}
	if result.Accepts.P99 < result.Accepts.P90 || result.Accepts.Max < float64(stall.Microseconds())*9/10 {
		t.Errorf("the longest wait is shorter than the stall: %+v", result.Accepts)
	}
}

// The schedule is made from the seed alone: a server that is slow meets as many buyers as one that is quick.
func TestTheScheduleKnowsNothingOfTheAnswers(t *testing.T) {
	t.Parallel()
	quick := load(t, accept)
	slow := load(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond) // four connections carry 200 of the 500 requests/s
		accept(w, r)
	})
	slow.Waiting = 10
	a, b := run(t, quick), run(t, slow)
	if a.Counted()+a.NotSent != b.Counted()+b.NotSent || a.Counted() == 0 {
		t.Errorf("got %d and %d buyers of the same schedule", a.Counted()+a.NotSent, b.Counted()+b.NotSent)
	}
	if a.NotSent > 0 || b.NotSent == 0 {
		t.Errorf("%d and %d buyers were not sent, want some before the slow server alone", a.NotSent, b.NotSent)
	}
	if b.Accepts.P50 < 2*a.Accepts.P50 {
		t.Errorf("the queue before a slow server does not show: p50 %.0f µs, of a quick one %.0f µs", b.Accepts.P50,
			a.Accepts.P50)
	}
	quick.Seed = 2
	if c := run(t, quick); c.Counted() == a.Counted() {
		t.Errorf("two seeds make the same %d arrivals", c.Counted())
	}
}

// Beyond the bound of the queue buyers are counted as not sent, and a server that never answers can't hold up a load.
func TestWhoFindsTheQueueFullIsNotSent(t *testing.T) {
	t.Parallel()
	stuck := make(chan struct{})
	c := load(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-stuck:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(stuck) })
	c.Waiting, c.Deadline, c.Length = 5, 300*time.Millisecond, 400*time.Millisecond
	result := run(t, c)
	if result.NotSent == 0 || result.Errors.Count == 0 || result.Accepts.Count > 0 {
		t.Errorf("got %+v, want errors, and buyers who were not sent", result)
	}
	if result.Failures != result.Errors.Count || result.FirstFailure == "" {
		t.Errorf("got %d failures %q, want the %d errors", result.Failures, result.FirstFailure, result.Errors.Count)
	}
}

// What buyers were answered is told apart, and agrees with what the server says that it answered.
func TestOutcomesAreToldApart(t *testing.T) {
	t.Parallel()
	answers := []struct {
		status int
		code   string
		kind   Kind
	}{
		{202, "", Accepted},
		{409, "sold-out", Rejected},
		{409, "already-ordered", Rejected},
		{503, "overloaded", Shed},
		{429, "overloaded", Shed},
		{500, "internal", Failed},
	}
	var next atomic.Int64
	served := make([]atomic.Int64, len(answers))
	result := run(t, load(t, func(w http.ResponseWriter, _ *http.Request) {
		i := int(next.Add(1)) % len(answers)
		served[i].Add(1)
		w.WriteHeader(answers[i].status)
		_, _ = w.Write([]byte(`{"code":"` + answers[i].code + `"}`)) // the test counts what was answered
	}))
	if len(result.Outcomes) != len(answers) {
		t.Errorf("got %d outcomes, want %d: %+v", len(result.Outcomes), len(answers), result.Outcomes)
	}
	kinds := map[Kind]int64{}
	for i, want := range answers {
		found := false
		for _, got := range result.Outcomes {
			if got.Status == want.status && got.Code == want.code {
				found = got.Kind == want.kind && got.Latency.Count == served[i].Load() && got.Latency.P50 > 0
			}
		}
		if !found {
			t.Errorf("%d %s: want %d answers of kind %s; got %+v", want.status, want.code, served[i].Load(), want.kind,
				result.Outcomes)
		}
		kinds[want.kind] += served[i].Load()
	}
	for kind, got := range map[Kind]int64{
		Accepted: result.Accepts.Count, Rejected: result.Rejections.Count, Shed: result.Sheds.Count,
		Failed: result.Errors.Count,
	} {
		if got != kinds[kind] {
			t.Errorf("%s: got %d, want %d", kind, got, kinds[kind])
		}
	}
}

// What happens in the warm-up is in the counts that a store is compared with, and in no waiting time.
func TestTheWarmUpIsNotCounted(t *testing.T) {
	t.Parallel()
	var served atomic.Int64
	c := load(t, func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		accept(w, r)
	})
	c.WarmUp, c.Length = 500*time.Millisecond, 500*time.Millisecond
	result := run(t, c)
	if result.Statuses[http.StatusAccepted] != served.Load() {
		t.Errorf("got %v, but the server answered %d", result.Statuses, served.Load())
	}
	if n := result.Accepts.Count; n == 0 || n > served.Load()*3/4 {
		t.Errorf("got %d counted of %d, want about half of them", n, served.Load())
	}
}

// In both models, every answer is counted and no buyer comes twice, whichever sale it is.
func TestNoBuyerComesTwice(t *testing.T) {
	t.Parallel()
	for name, rate := range map[string]float64{"closed": 0, "open": 400} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex // protects buyers and paths
			buyers, paths := map[string]int{}, map[string]int{}
			c := load(t, func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				buyers[r.Header.Get("X-User-Id")]++
				paths[r.URL.Path]++
				mu.Unlock()
				accept(w, r)
			})
			c.Rate, c.Length, c.Sales = rate, 500*time.Millisecond, []string{"a", "b", "c"}
			result := run(t, c)
			if got := int64(len(buyers)); got != result.Accepts.Count || got == 0 {
				t.Errorf("the server saw %d buyers, %d were accepted", got, result.Accepts.Count)
			}
			if len(paths) != 3 {
				t.Errorf("the requests went to %v, want three sales", paths)
			}
		})
	}
}

// A connection that the server has closed is opened again.
func TestLostConnectionsAreOpenedAgain(t *testing.T) {
	t.Parallel()
	var served atomic.Int64
	result := run(t, load(t, func(w http.ResponseWriter, r *http.Request) {
		if served.Add(1)%10 == 0 {
			panic(http.ErrAbortHandler) // cuts the connection
		}
		if served.Load()%7 == 0 {
			w.Header().Set("Connection", "close")
		}
		accept(w, r)
	}))
	if result.Accepts.Count < 8*result.Errors.Count || result.Errors.Count == 0 {
		t.Errorf("got %d accepts and %d errors, want an error for every ninth accept", result.Accepts.Count,
			result.Errors.Count)
	}
}

// A load that is interrupted ends, with what it has measured.
func TestAnInterruptedLoadEnds(t *testing.T) {
	t.Parallel()
	for name, rate := range map[string]float64{"closed": 0, "open": 500} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, interrupt := context.WithCancel(t.Context())
			var served atomic.Int64
			c := load(t, func(w http.ResponseWriter, r *http.Request) {
				if served.Add(1) == 50 {
					interrupt()
				}
				accept(w, r)
			})
			c.Rate, c.Length = rate, time.Hour
			g, err := Open(ctx, c)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			result, err := g.Run(ctx)
			if !errors.Is(err, context.Canceled) || result.Accepts.Count == 0 {
				t.Errorf("got %v and %d accepts, want what was measured", err, result.Accepts.Count)
			}
		})
	}
}

func TestOpenSaysThatNobodyListens(t *testing.T) {
	t.Parallel()
	c := load(t, accept)
	c.URL = "http://127.0.0.1:1"
	if _, err := Open(t.Context(), c); err == nil {
		t.Error("no error")
	}
}
