package prometheus_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
)

var (
	metricType = regexp.MustCompile(`(?m)^# TYPE (\w+) (\w+)$`)
	metricName = regexp.MustCompile(`\b(?:sluice|go|process)_\w+`)
	// counted are the metrics whose increase is asked for, histogramed those whose buckets are.
	counted     = regexp.MustCompile(`\b(?:rate|increase)\((\w+)`)
	histogramed = regexp.MustCompile(`\b(\w+)_bucket\b`)
	dashboards  = "../grafana/*.json"
	inJSON      = regexp.MustCompile(`"expr": "((?:[^"\\]|\\.)*)"`)
)

// expressions are those of the rules and of the dashboards.
func expressions(t *testing.T) (exprs []string) {
	t.Helper()
	rules := readRules(t)
	for i := range rules {
		exprs = append(exprs, rules[i].Expr)
	}
	files, err := filepath.Glob(dashboards)
	must(t, err)
	for _, file := range files {
		for _, expr := range inJSON.FindAllStringSubmatch(readFile(t, file), -1) {
			exprs = append(exprs, expr[1])
		}
	}
	return exprs
}

// TestMetricsExist: the rules and the dashboards use nothing that the programs don't export, and use it as what it is.
func TestMetricsExist(t *testing.T) {
	t.Parallel()
	uses := expressions(t)
	s := newSite(t, "")
	s.createSale("lamp", 100)
	_, order := s.order("lamp", "ann")
	s.operator("POST", "endpoints", `{"url":"http://127.0.0.1:1/"}`, nil)
	s.waitFor("the first order to be stored", func() bool { return s.count("select count(*) from orders") == 1 })
	s.pay("lamp", order, "ann")
	// A worker that can't reach Postgres counts the steps that fail, and a dead one's events are taken over.
	stream := pipeline.DefaultKeys.Orders(0)
	must(t, s.servers.Postgres.Pause())
	s.order("lamp", "bob")
	types := map[string]string{}
	s.waitFor("a step to fail", func() bool {
		maps.Copy(types, s.types())
		return types["sluice_worker_errors_total"] != ""
	})
	must(t, s.worker.Kill())
	must(t, s.servers.Postgres.Resume())
	s.worker = s.launch("worker")
	s.waitFor("the stream to be empty", func() bool { return s.rdb.XLen(t.Context(), stream).Val() == 0 })

	missing := func() (names []string) {
		for _, expr := range uses {
			for _, name := range metricName.FindAllString(expr, -1) {
				if typeOf(types, name) == "" && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
		return names
	}
	deadline := time.Now().Add(patience)
	for {
		maps.Copy(types, s.types())
		left := missing()
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no program exports %s", strings.Join(left, ", "))
		}
		time.Sleep(lookEvery)
	}
	for _, expr := range uses {
		for _, use := range counted.FindAllStringSubmatch(expr, -1) {
			if got := typeOf(types, use[1]); got != "counter" && got != "histogram" {
				t.Errorf("%s is a %s, which has no rate: %s", use[1], got, expr)
			}
		}
		for _, use := range histogramed.FindAllStringSubmatch(expr, -1) {
			if got := types[use[1]]; got != "histogram" {
				t.Errorf("%s is a %q, which has no buckets: %s", use[1], got, expr)
			}
		}
	}
	if used := len(types); used < 40 {
		t.Errorf("only %d metrics were scraped", used)
	}
	// The two objectives end at a bucket, or their ratios would be nothing.
	scraped := s.scrape(s.api) + s.scrape(s.worker)
	for _, bucket := range []string{
		`sluice_admission_duration_seconds_bucket{le="0.05"}`, `sluice_persist_delay_seconds_bucket{le="1"}`,
	} {
		if !strings.Contains(scraped, bucket) {
			t.Errorf("there is no %s", bucket)
		}
	}
}

// typeOf is a metric's type; a name may be that of a part of a histogram.
func typeOf(types map[string]string, name string) string {
	if found := types[name]; found != "" {
		return found
	}
	for _, part := range []string{"_bucket", "_count", "_sum"} {
		if whole, cut := strings.CutSuffix(name, part); cut && types[whole] == "histogram" {
			return "histogram"
		}
	}
	return ""
}

// types are those of the metrics that the programs export now.
func (s *site) types() map[string]string {
	s.Helper()
	found := map[string]string{}
	for _, text := range []string{s.scrape(s.api), s.scrape(s.worker)} {
		for _, m := range metricType.FindAllStringSubmatch(text, -1) {
			found[m[1]] = m[2]
		}
	}
	return found
}

func (s *site) waitFor(what string, condition func() bool) {
	s.Helper()
	testkit.Eventually(s.T, patience, what, condition)
}

// count asks Postgres for a number.
func (s *site) count(query string) (n int) {
	s.Helper()
	must(s.T, s.pool.QueryRow(s.Context(), query).Scan(&n))
	return n
}

// blocked is a path at which no directory can be made, until the file there is removed.
func blocked(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal")
	must(t, os.WriteFile(path, []byte(fmt.Sprintln("in the way")), 0o600))
	return path
}
