package main

import (
	"testing"
	"time"
)

func TestParseProcess(t *testing.T) {
	const line = "4711 (post) gres: x) S 42 4711 4711 0 -1 4194560 9 8 7 6 150 50 20 3 20 0 1 0 1234 5 6\n"
	got, err := parseProcess([]byte(line))
	if want := (processStat{parent: 42, used: 2230 * time.Millisecond}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, broken := range []string{"", "4711 (x) S 42", "4711 (x) S y 4711 4711 0 -1 4194560 9 8 7 6 150 50 20 3 20"} {
		if _, err := parseProcess([]byte(broken)); err == nil {
			t.Errorf("%q: no error", broken)
		}
	}
}

func TestParseMachine(t *testing.T) {
	busy, stolen, err := parseMachine([]byte("cpu  100 20 30 9999 8888 4 6 50 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"))
	if err != nil || busy != 1600*time.Millisecond || stolen != 500*time.Millisecond {
		t.Errorf("got %s busy, %s stolen, %v; want 1.6s, 500ms", busy, stolen, err)
	}
	if _, _, err := parseMachine([]byte("intr 1 2 3 4 5 6 7 8 9\n")); err == nil {
		t.Error("a line that is not cpu: no error")
	}
}

func TestParseScriptCalls(t *testing.T) {
	const info = "cmdstat_ping:calls=1,usec=2,usec_per_call=2.00\r\ncmdstat_evalsha:calls=12,usec=3456,usec_per_call=288.00\r\n"
	calls, micros, err := parseScriptCalls(info)
	if err != nil || calls != 12 || micros != 3456 {
		t.Errorf("got %d calls, %d µs, %v; want 12, 3456", calls, micros, err)
	}
	if calls, _, err := parseScriptCalls("cmdstat_ping:calls=1,usec=2\r\n"); err != nil || calls != 0 {
		t.Errorf("without scripts: got %d calls, %v; want none", calls, err)
	}
	if _, _, err := parseScriptCalls("cmdstat_evalsha:calls=x\r\n"); err == nil {
		t.Error("garbage: no error")
	}
}

func TestVerdict(t *testing.T) {
	work := func(u Usage) Work { return Work{Took: 10 * time.Second, CPU: u} }
	for _, test := range []struct {
		name string
		work Work
		want string
	}{
		{"no /proc", work(Usage{}), "unknown: there is no /proc"},
		{
			"Redis' thread is full",
			work(Usage{Redis: 9500 * time.Millisecond, Self: 3 * time.Second, Machine: 14 * time.Second}),
			"Redis, whose one thread is busy 95 % of the time",
		},
		{
			"idle", work(Usage{Redis: time.Second, Self: 3 * time.Second, Machine: 10 * time.Second}),
			"waiting, for disk flushes or for each other's answers: the CPUs are 50 % busy",
		},
		{
			"full", work(Usage{Redis: 3 * time.Second, Self: 12 * time.Second, Machine: 20 * time.Second}),
			"CPU: all 2 cores are busy, most of it (60 %) with sluice",
		},
		{
			"strangers", work(Usage{Self: 4 * time.Second, Machine: 20 * time.Second}),
			"CPU: all 2 cores are busy, most of it (80 %) with other programs",
		},
	} {
		if got := verdict(test.work, 2); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}
