package prometheus_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/programs"
	"sluice/pipeline"
)

const (
	// scrapes are how many are timed; the fastest counts, because the machine does other things as well.
	scrapes = 30
	// mostSlower is how many times slower a scrape may be then.
	mostSlower = 5
	// copiesAtOnce bounds how long one script keeps Redis.
	copiesAtOnce = 5000
)

// repeatEvent appends an event many times.
var repeatEvent = redis.NewScript(`for _ = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', unpack(ARGV, 2)) end return 1`)

// TestScrapeDuringABacklog runs on request only (SLUICE_SCRAPE_BACKLOG=1000000): what waits in a stream does not make a scrape slower, of an api and of a worker.
func TestScrapeDuringABacklog(t *testing.T) {
	t.Parallel()
	text := os.Getenv("SLUICE_SCRAPE_BACKLOG")
	if text == "" {
		t.Skip("runs with SLUICE_SCRAPE_BACKLOG=1000000, the number of events")
	}
	backlog, err := strconv.Atoi(text)
	must(t, err)
	s := newSite(t, "")
	s.createSale("lamp", 1000)
	s.order("lamp", "ann")
	s.stored("ann", 1)
	programs := map[string]*programs.Process{"api": s.api, "worker": s.worker}
	empty := map[string]time.Duration{}
	for name, p := range programs {
		empty[name] = s.fastestScrape(p)
	}

	must(t, s.servers.Postgres.Pause()) // so that nothing leaves the stream
	stream := pipeline.DefaultKeys.Orders(0)
	s.order("lamp", "bob")
	events, err := s.rdb.XRange(t.Context(), stream, "-", "+").Result()
	must(t, err)
	if len(events) == 0 {
		t.Fatal("the order has no event")
	}
	fields := []any{0}
	for name, value := range events[0].Values {
		fields = append(fields, name, value)
	}
	for n := 0; n < backlog; n += copiesAtOnce {
		fields[0] = min(copiesAtOnce, backlog-n)
		must(t, repeatEvent.Run(t.Context(), s.rdb, []string{stream}, fields...).Err())
	}
	s.waitFor("the api to see the backlog", func() bool {
		return gauge(s.scrape(s.api), `sluice_stream_length{partition="p00"}`) > float64(backlog)
	})
	s.waitFor("the worker to see the backlog", func() bool {
		return gauge(s.scrape(s.worker), `sluice_stream_lag{partition="p00"}`) > float64(backlog)/2
	})
	for name, p := range programs {
		took := s.fastestScrape(p)
		t.Logf("a scrape of the %s: %s with an empty stream, %s with %d events in it", name, empty[name], took, backlog)
		if took > mostSlower*empty[name] {
			t.Errorf("a scrape of the %s takes %s, and %s with an empty stream", name, took, empty[name])
		}
	}
}

// fastestScrape is the shortest time of many.
func (s *site) fastestScrape(p *programs.Process) time.Duration {
	s.Helper()
	fastest := time.Hour
	for range scrapes {
		began := time.Now()
		if s.scrape(p) == "" {
			s.Fatal("no answer to a scrape")
		}
		fastest = min(fastest, time.Since(began))
	}
	return fastest
}

// gauge is the value of a metric in a scrape; -1 if it is not there.
func gauge(scraped, name string) float64 {
	_, after, found := strings.Cut(scraped, "\n"+name+" ")
	if !found {
		return -1
	}
	text, _, _ := strings.Cut(after, "\n")
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(fmt.Sprint(name, " is no number: ", text))
	}
	return value
}
