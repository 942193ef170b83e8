package prometheus_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"sluice/internal/localservers"
	"sluice/internal/programs"
)

// hurried makes hours of the rules seconds: windows, for, and the times that thresholds are about. What each alert asks
// for stays as it is.
func hurried(t *testing.T, rules string) string {
	t.Helper()
	for _, change := range []struct{ from, to string }{
		{`for: \w+`, `for: 1s`},
		{`\[1m\]`, `[6s]`}, {`\[5m\]`, `[6s]`}, {`\[15m\]`, `[12s]`}, {`\[30m\]`, `[8s]`}, {`\[1h\]`, `[12s]`}, {`\[6h\]`, `[14s]`},
		{`\[3d\]`, `[16s]`},
		{`(_seconds_count\[\w+\]\)\)) > 100`, `$1 > 5`},
		{`(oldest_age_seconds\)) > 30`, `$1 > 5`},
		{`(checked_timestamp_seconds\)) > 300`, `$1 > 12`},
		{`> 60 \+ 10 \*`, `> 10 + 3 *`},
	} {
		pattern := regexp.MustCompile(change.from)
		if !pattern.MatchString(rules) {
			t.Fatalf("the rules have no %s any more", change.from)
		}
		rules = pattern.ReplaceAllString(rules, change.to)
	}
	return rules
}

// watched is a site with a Prometheus of its own.
type watched struct {
	*site
	url     string
	targets string // the file that says what is scraped
}

var listening = regexp.MustCompile(`msg="Listening on" address=(\S+)`)

// watch starts a Prometheus that evaluates the hurried rules, twice a second.
func (s *site) watch(path string) *watched {
	s.Helper()
	dir := s.TempDir()
	w := &watched{site: s, targets: filepath.Join(dir, "targets.json")}
	w.retarget()
	rules := filepath.Join(dir, rulesFile)
	must(s.T, os.WriteFile(rules, []byte(hurried(s.T, readFile(s.T, rulesFile))), 0o600))
	config, err := yaml.Marshal(map[string]any{
		"global":     map[string]any{"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
		"rule_files": []string{rules},
		"scrape_configs": []any{map[string]any{
			"job_name": "sluice", "file_sd_configs": []any{map[string]any{"files": []string{w.targets}, "refresh_interval": "1s"}},
		}},
	})
	must(s.T, err)
	file := filepath.Join(dir, "prometheus.yml")
	must(s.T, os.WriteFile(file, config, 0o600))
	out := &announced{}
	_, err = s.servers.Run(localservers.Program{
		Name: "prometheus", Path: path, Stdout: out, Stderr: out, Env: programs.Environ(),
		Args: []string{
			"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(dir, "data"),
			"--web.listen-address=127.0.0.1:0", "--storage.tsdb.retention.time=1h",
		},
	})
	must(s.T, err)
	s.waitFor("Prometheus to listen", func() bool { w.url = out.address(); return w.url != "" })
	return w
}

// retarget has the programs scraped that run now.
func (w *watched) retarget() {
	w.Helper()
	addresses := []string{}
	for _, p := range []*programs.Process{w.api, w.worker} {
		if p != nil {
			addresses = append(addresses, strings.TrimPrefix(p.AdminURL(), "http://"))
		}
	}
	text, err := json.Marshal([]any{map[string]any{"targets": addresses}})
	must(w.T, err)
	must(w.T, os.WriteFile(w.targets+".new", text, 0o600))
	must(w.T, os.Rename(w.targets+".new", w.targets))
}

// announced reads in Prometheus' log where it listens.
type announced struct {
	mu   sync.Mutex // protects the rest
	text []byte
}

func (a *announced) Write(text []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.text) < 64<<10 {
		a.text = append(a.text, text...)
	}
	return len(text), nil
}

func (a *announced) address() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m := listening.FindSubmatch(a.text); m != nil {
		return "http://" + string(m[1])
	}
	return ""
}

func (w *watched) firing() []string {
	w.Helper()
	names, _ := w.look()
	return names
}

// look returns the names of the alerts that fire, and whether Prometheus answered.
func (w *watched) look() (names []string, answered bool) {
	w.Helper()
	status, answer := w.call(http.MethodGet, w.url+"/api/v1/alerts", http.Header{}, "")
	var list struct {
		Data struct {
			Alerts []struct {
				Labels map[string]string
				State  string
			}
		}
	}
	if status != http.StatusOK || json.Unmarshal(answer, &list) != nil {
		return nil, false
	}
	for _, a := range list.Data.Alerts {
		if a.State == "firing" {
			names = append(names, a.Labels["alertname"])
		}
	}
	return names, true
}

// fire waits until each of some alerts has fired. It goes on causing the fault, for alerts about a rate.
func (w *watched) fire(cause func(), names ...string) {
	w.Helper()
	left := slices.Clone(names)
	deadline := time.Now().Add(patience)
	for len(left) > 0 {
		cause()
		for _, name := range w.firing() {
			if i := slices.Index(left, name); i >= 0 {
				w.Logf("%s fires", name)
				left = slices.Delete(left, i, i+1)
			}
		}
		if time.Now().After(deadline) {
			w.Fatalf("%v did not fire", left)
		}
		time.Sleep(lookEvery)
	}
}

// resolve waits until none of some alerts fires.
func (w *watched) resolve(names ...string) {
	w.Helper()
	w.waitFor(fmt.Sprint(names, " to resolve"), func() bool {
		firing, answered := w.look()
		return answered && !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(firing, name) })
	})
	for _, name := range names {
		provoked.Store(name, true)
	}
}

// provoked are the alerts that have fired and resolved.
var provoked sync.Map

// scrapedSince reports whether Prometheus has scraped a program twice: an increase needs a number of before.
func (w *watched) scrapedSince(p *programs.Process) bool {
	w.Helper()
	query := url.Values{"query": {`count_over_time(sluice_events_lost_total{instance="` +
		strings.TrimPrefix(p.AdminURL(), "http://") + `"}[1m]) > 1`}}
	_, answer := w.call(http.MethodGet, w.url+"/api/v1/query?"+query.Encode(), http.Header{}, "")
	return strings.Contains(string(answer), "sluice")
}

func nothing() {}
