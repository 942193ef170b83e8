package console_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/operator"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/worker"
)

// TestTheOverviewSaysWhatIsWrong: with why, and what to do; and that all is well when it is.
func TestTheOverviewSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	r := newRig(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 100}})
	b := r.as("ann", operator.Read)
	says := func(want string) func() bool {
		return func() bool { return strings.Contains(textOf(b.get("/console/").body), want) }
	}
	r.AdmitMany("buyer", 7)
	r.eventually("that nobody works", says("No worker is alive 7 accepted orders wait on disk in Redis, and nobody stores them"))
	b.want(http.StatusOK, b.get("/console/workers"), "No worker is alive", "Start a worker")
	running := r.StartWorker(r.Store, worker.Options{})
	r.eventually("all to be well", says("All is well"))
	b.want(http.StatusOK, b.get("/console/workers"), running.Name(), "1 alive")
	b.want(http.StatusOK, b.get("/console/"), "Workers alive 1", "Drift 0", "Dead letters 0", "drop-1", "93")
	r.bury(map[string]any{"s": "drop-1"}, "x")
	r.eventually("the dead letter", says("1 dead letter to decide"))
	r.Exec(1, `update sales set sold = sold + 2 where id = 'drop-1'`)
	r.eventually("the drift", says("The units of drop-1 don't add up 2 units too many, which could be sold twice"))
	must(t, r.Redis.Del(r.Ctx(), r.Keys.Trusted(2)).Err())
	r.eventually("the partition", says("Nobody can order on 1 partition of 4"))
	running.Stop()
	r.eventually("that nobody works any more", says("No worker is alive No order waits at the moment"))
}

// TestStoresThatAreAway: the overview shows what it can, and says what it can't.
func TestStoresThatAreAway(t *testing.T) {
	t.Parallel()
	proxy := pipelinetest.Through(t, testkit.PrivateRedis(t).URL())
	r := newRig(t, pipelinetest.Options{RedisURL: proxy.URL()})
	b := r.as("ann", operator.Read)
	b.want(http.StatusOK, b.get("/console/"), "drop-1")
	proxy.Cut()
	r.eventually("that Redis is away", func() bool {
		return strings.Contains(textOf(b.get("/console/").body), "Redis can't be seen")
	})
	got := textOf(b.want(http.StatusOK, b.get("/console/")).body)
	for _, wrong := range []string{"All is well", "No worker is alive"} {
		if strings.Contains(got, wrong) {
			t.Errorf("it says %q of a Redis that it can't see", wrong)
		}
	}
	b.want(http.StatusOK, b.get("/console/sales/drop-1"), "Redis")
	b.want(http.StatusOK, b.get("/console/settings"), "can't be seen")
}

// TestTheFilterOfSales: counters follow it.
func TestTheFilterOfSales(t *testing.T) {
	t.Parallel()
	r := newRig(t, pipelinetest.Options{NoSale: true})
	later := time.Now().Add(time.Hour)
	for _, s := range []pipeline.Sale{
		{ID: "lamp-1", Title: "Lamp"}, {ID: "lamp-2", Title: "Lamp"}, {ID: "chair", OpensAt: later, ClosesAt: later.Add(time.Hour)},
	} {
		r.CreateSale(s)
	}
	r.reload()
	b := r.as("ann", operator.Read)
	for path, says := range map[string]string{
		"/console/": "all 3 open 2 sold out 0 paused 0 scheduled 1", "/console/?q=LAMP": "all 2 open 2 sold out 0 paused 0 scheduled 0",
		"/console/?q=cha": "all 1 open 0", "/console/?phase=scheduled": "all 3 open 2",
		"/console/?q=none": "No sale is like that",
	} {
		b.want(http.StatusOK, b.get(path), says)
	}
	got := textOf(b.get("/console/?phase=scheduled").body)
	if strings.Contains(got, "lamp-1") || !strings.Contains(got, "chair") {
		t.Errorf("the filter chooses others: %s", got)
	}
}

// TestManySales: the page shows some, says so, and the filter finds the others.
func TestManySales(t *testing.T) {
	t.Parallel()
	r := newRig(t, pipelinetest.Options{NoSale: true})
	now := time.Now()
	for i := range 103 {
		r.CreateSale(pipeline.Sale{ID: fmt.Sprintf("s-%03d", i), OpensAt: now, ClosesAt: now.Add(time.Hour)})
	}
	r.reload()
	b := r.as("ann", operator.Read)
	b.want(http.StatusOK, b.get("/console/"), "all 103", "The first 100 of 103", "s-099")
	b.want(http.StatusOK, b.get("/console/?q=s-102"), "all 1 ", "s-102")
}

// TestLivePages: what changes is sent; a stream ends with its session.
func TestLivePages(t *testing.T) {
	t.Parallel()
	r := newRig(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 1000}})
	id, text := r.token("ann", operator.Read)
	b := r.browser()
	b.signIn(text)
	request, err := http.NewRequestWithContext(r.Ctx(), http.MethodGet, r.url+salePath+"/live", http.NoBody)
	must(t, err)
	stream := &http.Client{Jar: b.client.Jar, Transport: b.client.Transport} // it lasts
	response, err := stream.Do(request)
	must(t, err)
	defer response.Body.Close()
	if got := response.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("got %s", got)
	}
	lines := bufio.NewScanner(response.Body)
	await := func(what string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), what) {
				return
			}
		}
		t.Fatalf("the stream ends without %q: %v", what, lines.Err())
	}
	await("<dd>1,000</dd>")
	r.AdmitMany("buyer", 3)
	await("<dd>997</dd>")
	_, _, err = r.Store.OperatorTokens().Revoke(r.Ctx(), id, "cli:test")
	must(t, err)
	await("event: signed-out")
	for lines.Scan() {
		if strings.Contains(lines.Text(), "event: part") {
			t.Error("the stream goes on after its session has ended")
		}
	}
}
