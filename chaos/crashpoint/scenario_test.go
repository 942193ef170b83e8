package crashpoint

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/faultnet"
	"sluice/internal/programs"
	"sluice/internal/testkit"
)

// scenario is some work that a process does from its start on, and what must be true in the end wherever it died.
type scenario struct {
	name    string
	program string // api or worker
	// steps are labels that the process must pass: without one of them the scenario no longer tests what it says.
	steps []string
	// from is the label at which the scenario's own work begins: the points before it are those of another scenario.
	// Empty: the start of the process is a part of it.
	from string
	// prepare makes the state before the process starts.
	prepare func(*run)
	// act gives the process its work once it is ready, and waits for the answer; nil when it finds its work by itself.
	act func(*run)
	// interfere is called when the process passes a point, which waits there meanwhile; nil: nothing happens beside.
	interfere   func(*run)
	interfereAt point
	// done reports whether the work is done.
	done func(*run) bool
	// recover starts what takes over, and waits until all is settled.
	recover func(*run)
	// check compares what is left with what must be.
	check func(*run)
}

// run is one run of a scenario at a testbed, with a crash at one point or without any.
type run struct {
	*testing.T
	*testbed
	scenario  *scenario
	killed    point // the zero point: nobody was
	buyers    *faultnet.Proxy
	victim    *programs.Process
	processes []*programs.Process // everybody, the victim included

	warnings programs.Warnings // of all processes

	first answer // to the first request of act; the zero answer when there was none
}

// try runs the scenario with a crash at the target. It returns the points that the process passed, and whether it was
// killed.
func (s *scenario) try(t *testing.T, at *testbed, names map[string]string, target point) (passed []point,
	reached bool,
) {
	t.Helper()
	at.reset(t)
	r := &run{T: t, testbed: at, scenario: s, warnings: programs.Warnings{Keep: 1000}}
	t.Cleanup(r.logWarnings)
	s.prepare(r)
	w := newWatcher(target)
	if s.interfere != nil {
		w.interfereAt, w.interfere = s.interfereAt, func() { s.interfere(r) }
	}
	passed, reached = r.perform(w, names)
	if reached {
		r.killed = target
	}
	s.recover(r)
	s.check(r)
	for _, m := range r.processes { // the testbed is used again
		r.must(m.Kill())
	}
	return passed, reached
}

// perform has the process do its work, behind proxies, until the work is done or the process is killed. Nothing of it
// is left when it returns.
func (r *run) perform(w *watcher, names map[string]string) (passed []point, reached bool) {
	r.Helper()
	texts := &statements{texts: map[string]string{}}
	redisProxy := r.watched(r.redisURL, w, func(request []byte) string { return redisLabel(names, request) })
	postgresProxy := r.watched(r.databaseURL, w, texts.label)
	r.buyers = r.watched("http://127.0.0.1:1", w, httpLabel) // the api address is known when it is ready
	r.victim = r.launch("victim", r.scenario.program, r.settings(redisProxy.URL(), postgresProxy.URL()))
	var killer sync.WaitGroup
	over := make(chan struct{})
	finish := sync.OnceFunc(func() {
		close(over)
		killer.Wait()
	})
	defer finish() // also when the test is given up
	killer.Go(func() {
		defer close(w.dead)
		select {
		case <-w.reached:
			if err := r.victim.Kill(); err != nil {
				r.Errorf("kill: %v", err)
			}
		case <-over:
		}
	})
	r.giveWork(w)
	passed, reached = w.finish()
	finish()
	if err := r.victim.Kill(); err != nil {
		r.Errorf("kill: %v", err)
	}
	for _, proxy := range []*faultnet.Proxy{redisProxy, postgresProxy, r.buyers} {
		if err := proxy.Close(); err != nil {
			r.Errorf("close a proxy: %v", err)
		}
	}
	return passed, reached
}

// watched puts a proxy before a server.
func (r *run) watched(url string, w *watcher, label func([]byte) string) *faultnet.Proxy {
	r.Helper()
	proxy, err := faultnet.Listen(url)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = proxy.Close() })
	proxy.Watch(func(e faultnet.Exchange) bool { return w.see(label(e.Request), e.Moment) })
	return proxy
}

// giveWork waits until the process is ready, gives it its work, and waits until that is done or the process is dead.
func (r *run) giveWork(w *watcher) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	err := r.victim.Await(ctx)
	if err == nil && r.victim.URL() != "" {
		err = r.buyers.Retarget(r.victim.URL())
	}
	if err == nil && r.scenario.act != nil {
		r.scenario.act(r)
	}
	for {
		select {
		case <-w.reached:
			return
		default:
		}
		if err != nil {
			r.Fatalf("the process did not get ready, and not by our hand: %v", err)
		}
		if len(w.missing(r.scenario.steps)) == 0 && r.scenario.done(r) {
			r.linger(w)
			return
		}
		select {
		case <-w.reached:
			return
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			r.Fatalf("the work was not done in %s; steps that were not passed: %q", patience, w.missing(r.scenario.steps))
		}
	}
}

// linger gives a process that has done its work the time for what it does by the clock.
func (r *run) linger(w *watcher) {
	if w.target == (point{}) {
		return
	}
	select {
	case <-w.reached:
	case <-time.After(lingerLimit):
	}
}

// launch starts a process. It ends with its test at the latest.
func (r *run) launch(name, program string, settings []string) *programs.Process {
	r.Helper()
	m, err := programs.Launch(r.servers, programs.Program{
		Name: name, Path: filepath.Join(r.programs, program), Environ: settings, OnLine: r.warnings.Add,
	})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = m.Kill() }) // should the run be given up
	r.processes = append(r.processes, m)
	return m
}

// takeOver starts processes without any fault, and returns when they are ready.
func (r *run) takeOver(names ...string) []*programs.Process {
	r.Helper()
	var processes []*programs.Process
	for _, program := range names {
		processes = append(processes, r.launch("replacement", program, r.settings(r.redisURL, r.databaseURL)))
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	for _, m := range processes {
		if err := m.Await(ctx); err != nil {
			r.Fatal(err)
		}
	}
	return processes
}

// eventually waits for something that must come to be.
func (r *run) eventually(what string, holds func() bool) {
	r.Helper()
	testkit.Eventually(r.T, patience, what, holds)
}

// logWarnings shows what the processes complained about, when something is wrong.
func (r *run) logWarnings() {
	if r.Failed() {
		r.Logf("warnings of the processes:\n%s", strings.Join(r.warnings.Lines("15:04:05.000 "), "\n"))
	}
}

// job is one point to be tried.
type job struct {
	scenario *scenario
	point    point // the zero point: without a crash
}

// tries bounds how often a point is tried that the process did not pass: how often it does something can hang on the
// clock.
const tries = 3

// byChance are steps that a process takes where no other one has taken them before: elections, and the examination of
// Postgres.
var byChance = []string{
	"postgres elect verifier", "postgres end election", "postgres name the server", "postgres look for an examination",
	"postgres look for a loss", "postgres read all watermarks", "redis hmget", "postgres record the server",
}

// lingerLimit is longer than the longest tick of a job that has points.
const lingerLimit = 5 * time.Second

// enoughFailures end the test: each can take all of its patience.
const enoughFailures = 10

// TestCrashPoints proves I4, I6, I7 and I8 at every point: see the package's comment.
func TestCrashPoints(t *testing.T) {
	t.Parallel()
	all := openTestbeds(t)
	names := scripts(t)
	scenarios := []*scenario{orders(), shutdown(), purchase(), rebuild(), ledger(), replay(), stale()}
	points := findPoints(t, all, names, scenarios)
	var mu sync.Mutex // protects missed
	missed := map[point]bool{}
	var failures atomic.Int64
	began := time.Now()
	share(all, points, func(at *testbed, j job) {
		if failures.Load() >= enoughFailures {
			return
		}
		t.Run(j.scenario.name+"/"+j.point.String(), func(t *testing.T) {
			t.Cleanup(func() {
				if t.Failed() {
					failures.Add(1)
				}
			})
			for range tries {
				if _, reached := j.scenario.try(t, at, names, j.point); reached {
					return
				}
			}
			if j.point.n == 1 && !slices.Contains(byChance, j.point.label) {
				t.Errorf("the process did not pass this point in %d runs, and did in the first", tries)
			}
			mu.Lock()
			defer mu.Unlock()
			missed[j.point] = true
		})
	})
	if failures.Load() >= enoughFailures {
		t.Errorf("given up after %d points at which something was left wrong", failures.Load())
	}
	t.Logf("%d points in %s, of which %d were not met again", len(points),
		time.Since(began).Round(100*time.Millisecond), len(missed))
	for p := range missed {
		t.Logf("not met again: %s", p)
	}
}

// findPoints runs each scenario once without a crash. It fails for steps that were not passed.
func findPoints(t *testing.T, all []*testbed, names map[string]string, scenarios []*scenario) []job {
	t.Helper()
	var mu sync.Mutex // protects found
	var found []job
	var firsts []job
	for _, s := range scenarios {
		firsts = append(firsts, job{scenario: s})
	}
	share(all, firsts, func(at *testbed, j job) {
		t.Run(j.scenario.name+"/without a crash", func(t *testing.T) {
			passed, _ := j.scenario.try(t, at, names, point{})
			passed = passed[max(0, slices.IndexFunc(passed, func(p point) bool { return p.label == j.scenario.from })):]
			var lines []string
			for _, p := range passed {
				lines = append(lines, p.String())
			}
			t.Logf("%s: %d points\n  %s", j.scenario.name, len(passed), strings.Join(lines, "\n  "))
			for _, step := range j.scenario.steps {
				if !slices.ContainsFunc(passed, func(p point) bool { return p.label == step }) {
					t.Errorf("the process did not pass the step %q", step)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for _, p := range passed {
				found = append(found, job{scenario: j.scenario, point: p})
			}
		})
	})
	if t.Failed() {
		t.FailNow()
	}
	return found
}

// share does the jobs, one at a time at each testbed.
func share(all []*testbed, jobs []job, do func(*testbed, job)) {
	queue := make(chan job, len(jobs))
	for _, j := range jobs {
		queue <- j
	}
	close(queue)
	var working sync.WaitGroup
	for _, at := range all {
		working.Go(func() {
			for j := range queue {
				do(at, j)
			}
		})
	}
	working.Wait()
}
