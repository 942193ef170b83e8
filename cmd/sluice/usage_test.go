package main

import (
	"os"
	"strings"
	"testing"

	"sluice/internal/testkit"
	"sluice/pipeline"
)

// Each of these is refused before any server is asked: none is even set.
func TestWrongUse(t *testing.T) {
	t.Parallel()
	create := func(args ...string) []string {
		return append([]string{"sale", "create", "--id", "drop-1", "--stock", "10"}, args...)
	}
	bench := func(args ...string) []string { // the last of a flag counts
		return append([]string{"bench", "--url", "http://127.0.0.1:1", "--sale", "drop-1", "--rate", "5", "--yes"}, args...)
	}
	for _, test := range []struct {
		name string
		args []string
		says []string
	}{
		{"nothing", nil, []string{"dev", "demo", "--help"}},
		{"unknown command", []string{"sell"}, []string{"sell", "sluice --help"}},
		{"dev with a Redis", []string{"dev", "--redis-url", "redis://h"}, []string{"--redis-url", "of its own"}},
		{"demo with a database", []string{"demo", "--database-url=postgres://h/d"}, []string{"--database-url"}},
		{"unknown flag", []string{"audit", "--all"}, []string{"--all"}},
		{"no argument", []string{"sale", "show"}, []string{"<sale>", "sluice sale show --help"}},
		{"two arguments", []string{"sale", "show", "a", "b"}, []string{"b"}},
		{"no id", []string{"sale", "create", "--stock", "10"}, []string{"--id"}},
		{"no stock", []string{"sale", "create", "--id", "drop-1"}, []string{"--stock"}},
		{"stock 0", create("--stock", "0"), []string{"stock 0", "1 to 2147483648"}},
		{"stock -1", create("--stock", "-1"), []string{"stock -1", "1 to 2147483648"}},
		{"stock=-1", create("--stock=-1"), []string{"stock -1"}},
		{"stock above 2^31", create("--stock", "2147483649"), []string{"stock 2147483649"}},
		{"stock above 2^64", create("--stock", "99999999999999999999"), []string{"--stock"}},
		{"stock 1.5", create("--stock", "1.5"), []string{"--stock"}},
		{"stock in words", create("--stock", "many"), []string{"--stock", "many"}},
		{"quantity 0", create("--max-quantity", "0"), []string{"max quantity 0"}},
		{"quantity 1001", create("--max-quantity", "1001"), []string{"max quantity 1001"}},
		{"closes before it opens", create("--opens", "+2h", "--closes", "+1h"), []string{"closes at", "not after"}},
		{
			"a sale that is over", create("--opens", "2020-01-01T00:00:00Z", "--closes", "2020-01-02T00:00:00Z"),
			[]string{"2020-01-02", "is over"},
		},
		{"closes when it opens", create("--opens", "now", "--closes", "now"), []string{"not after"}},
		{"closes in RFC 3339 before it opens", create("--closes", "2020-01-01T00:00:00Z"), []string{"not after"}},
		{"time of another form", create("--opens", "tomorrow"), []string{"tomorrow", "RFC 3339"}},
		{"time without a zone", create("--opens", "2026-11-27T09:00:00"), []string{"RFC 3339"}},
		{"time ago", create("--opens", "+-1h"), []string{"+-1h"}},
		{"time beyond reason", create("--closes", "+999999h"), []string{"+999999h"}},
		{"waitlist below 0", create("--waitlist", "-1"), []string{"waitlist -1"}},
		{"waitlist too long", create("--waitlist", "1000001"), []string{"waitlist 1000001: use 0 (none) to 1000000 people"}},
		{"payment window below 0", create("--payment-window", "-1s"), []string{"payment window -1s"}},
		{"payment window of 31 days", create("--payment-window", "744h"), []string{"payment window"}},
		{"payment window in words", create("--payment-window", "soon"), []string{"--payment-window"}},
		{"title with a control character", create("--title", "a\tb\x1b[2J"), []string{"title"}},
		{"title of 201 bytes", create("--title", strings.Repeat("x", 201)), []string{"title", "200"}},
		{"id with a space", create("--id", "drop 1"), []string{"sale id"}},
		{"id with a slash", create("--id", "drop/1"), []string{"sale id"}},
		{"id with braces", create("--id", "{p00}"), []string{"sale id"}},
		{"id in capitals", create("--id", "Drop"), []string{"sale id"}},
		{"id with a dash first", create("--id=-drop"), []string{"sale id"}},
		{"id of 65 characters", create("--id", strings.Repeat("a", 65)), []string{"sale id", "64"}},
		{"empty id", create("--id", ""), []string{"sale id"}},
		{"an empty sale to rebuild", []string{"rebuild", "--apply", "--sale="}, []string{"--sale", "is empty"}},
		{"an empty sale to repair", []string{"audit", "--repair", "--apply", "--sale", ""}, []string{"--sale", "is empty"}},
		{"no sale at the end", []string{"audit", "--sale"}, []string{"--sale"}},
		{"an empty sale of letters", []string{"dead-letter", "ls", "--sale="}, []string{"--sale", "is empty"}},
		{"restock by 0", []string{"sale", "restock", "drop-1", "--add", "0"}, []string{"--add 0"}},
		{"restock by -5", []string{"sale", "restock", "drop-1", "--add", "-5"}, []string{"--add -5", "sale reduce"}},
		{"reschedule to nothing", []string{"sale", "reschedule", "drop-1"}, []string{"--opens", "--closes"}},
		{"reschedule to nonsense", []string{"sale", "reschedule", "drop-1", "--closes", "never"}, []string{"never"}},
		{"order id that is none", []string{"order", "show", "drop-1", "17"}, []string{"UUID"}},
		{"payment of what is no order", []string{"order", "pay", "17", "--sale", "drop-1"}, []string{"UUID"}},
		{"payment without a sale", []string{"order", "pay", "018f0000-0000-7000-8000-000000000000"}, []string{"--sale"}},
		{"payment below 0", []string{
			"order", "pay", "018f0000-0000-7000-8000-000000000000", "--sale", "drop-1", "--amount",
			"-1", "--currency", "EUR",
		}, []string{"amount: -1", "minor units"}},
		{"payment beyond reason", []string{
			"order", "pay", "018f0000-0000-7000-8000-000000000000", "--sale", "drop-1",
			"--amount", "1000000000001", "--currency", "EUR",
		}, []string{"amount: 1000000000001"}},
		{"payment without a currency", []string{
			"order", "pay", "018f0000-0000-7000-8000-000000000000", "--sale", "drop-1",
			"--amount", "5",
		}, []string{"currency"}},
		{"payment with a blank in its id", []string{
			"order", "pay", "018f0000-0000-7000-8000-000000000000", "--sale",
			"drop-1", "--payment-id", "a b",
		}, []string{"payment_id"}},
		{
			"cancel without a reason",
			[]string{"order", "cancel", "018f0000-0000-7000-8000-000000000000", "--sale", "drop-1"},
			[]string{"--reason"},
		},
		{"cancel what is no order", []string{"order", "cancel", "x", "--sale", "drop-1", "--reason", "r"}, []string{"UUID"}},
		{
			"payments with an unknown outcome",
			[]string{"payment", "ls", "--outcome", "lost"},
			[]string{"--outcome lost", "refund_due"},
		},
		{"payments without limit", []string{"payment", "ls", "--limit", "0"}, []string{"--limit 0"}},
		{"price without a currency", create("--price", "5"), []string{"currency"}},
		{"price below 0", create("--price", "-5", "--currency", "EUR"), []string{"unit price -5"}},
		{"currency in words", create("--price", "5", "--currency", "euro"), []string{`currency "euro"`}},
		{"letter without an id", []string{"dead-letter", "show"}, []string{"<id>", "sluice dead-letter show --help"}},
		{"letter that is no number", []string{"dead-letter", "show", "x"}, []string{"x"}},
		{"letters without limit", []string{"dead-letter", "ls", "--limit", "501"}, []string{"--limit 501", "1 to 500"}},
		{
			"repair of what is made again",
			[]string{"dead-letter", "replay", "1", "--set", "k=5"},
			[]string{`"k"`, "s, u, q, v"},
		},
		{"repair without a value", []string{"dead-letter", "replay", "1", "--set", "q"}, []string{"--set q", "field=value"}},
		{
			"repair twice",
			[]string{"dead-letter", "replay", "1", "--set", "q=1", "--set", "q=2"},
			[]string{"--set q", "twice"},
		},
		{"endpoint without a URL", []string{"endpoint", "add"}, []string{"--url"}},
		{"endpoint for unknown events", []string{
			"endpoint", "add", "--url", "https://example.com/", "--types",
			"order.paid,order.lost",
		}, []string{"order.lost", "sale.sold_out"}},
		{"endpoint that is no number", []string{"endpoint", "enable", "x"}, []string{"x"}},
		{"health of nothing", []string{"health", "localhost"}, []string{"localhost", "http://"}},
		{"health for an hour", []string{"health", "http://localhost/", "--timeout", "1h"}, []string{"--timeout"}},
		{"no workers", []string{"dev", "--workers", "0"}, []string{"--workers 0"}},
		{"too many workers", []string{"dev", "--workers", "17"}, []string{"1 to 16"}},
		{"address without a port", []string{"dev", "--http-addr", "localhost"}, []string{"localhost"}},
		{"demo too small", []string{"demo", "--requests", "10"}, []string{"--requests 10"}},
		{"demo with few buyers", []string{"demo", "--buyers", "5"}, []string{"--buyers 5"}},
		{"demo with too many buyers", []string{"demo", "--buyers", "15000"}, []string{"--buyers 15000", "10000"}},
		{"demo without time to pay", []string{"demo", "--pay-within", "10ms"}, []string{"--pay-within 10ms", "1s"}},
		{"demo too fast", []string{"demo", "--rate", "1000000"}, []string{"--rate 1000000"}},
		{"demo below 0", []string{"demo", "--stock", "-3"}, []string{"--stock -3"}},
		{"bench of nothing", []string{"bench", "--sale", "drop-1", "--rate", "5"}, []string{"--url"}},
		{"bench without a sale", []string{"bench", "--url", "http://127.0.0.1:1", "--rate", "5"}, []string{"--sale"}},
		{"bench of a sale that can't be", bench("--sale", "Drop 1"), []string{"--sale", "Drop 1"}},
		{"bench of another protocol", bench("--url", "redis://127.0.0.1"), []string{"redis://127.0.0.1", "http://"}},
		{"bench of a path", bench("--url", "http://127.0.0.1/v1"), []string{"/v1", "nothing more"}},
		{"bench at no rate", bench("--rate", "0"), []string{"--rate 0"}},
		{"bench too fast", bench("--rate", "1e6"), []string{"--rate 1e+06", "100000"}},
		{"bench at a rate that is none", bench("--rate", "NaN"), []string{"--rate"}},
		{"bench for no time", bench("--duration", "0s"), []string{"--duration 0s"}},
		{"bench for a day", bench("--duration", "24h"), []string{"--duration 24h", "1h"}},
		{"bench with a warm-up below 0", bench("--warm-up", "-1s"), []string{"--warm-up -1s"}},
		{"bench without connections", bench("--connections", "0"), []string{"--connections 0", "4096"}},
		{"bench for nothing", bench("--quantity", "0"), []string{"--quantity 0"}},
		{"bench with half a header", bench("--header", "Authorization"), []string{"--header", "Name: value"}},
		{"bench with a header that ends the line", bench("--header", "X: a\r\nY: b"), []string{"header", "X"}},
		{"settings missing", []string{"audit"}, []string{"DATABASE_URL is missing", "REDIS_URL is missing"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			sluice(t, nil, test.args...).mustRefuse(t, 2, test.says...)
		})
	}
}

// All that is wrong is reported at once, and a password never.
func TestWrongSettings(t *testing.T) {
	t.Parallel()
	got := sluice(t, []string{
		"DATABASE_URL=mysql://root:hunter2@localhost/x", "REDIS_URL=redis//:hunter2@localhost", "PARTITIONS=65",
		"LOG_LEVEL=loud",
	}, "audit")
	got.mustRefuse(t, 2, "DATABASE_URL", "REDIS_URL", "PARTITIONS", "LOG_LEVEL")
	if strings.Contains(got.err, "hunter2") {
		t.Errorf("a password is shown: %s", got.err)
	}
}

// A server that is away is a failure, not a wrong use; it is reported in one sentence, in time, and without the
// password.
func TestServersAway(t *testing.T) {
	t.Parallel()
	settings := []string{
		"DATABASE_URL=postgres://operator:hunter2@127.0.0.1:1/sluice", "REDIS_URL=redis://:hunter2@127.0.0.1:1/0",
		"START_TIMEOUT=300ms",
	}
	for _, args := range [][]string{
		{"audit"}, {"stream"}, {"workers"}, {"sale", "list"}, {
			"sale", "create", "--id", "drop-1", "--stock",
			"5",
		}, {"migrate"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			got := sluice(t, settings, args...)
			got.mustRefuse(t, 1, "does not answer", "127.0.0.1:1", "start it, or correct")
			if strings.Contains(got.err, "hunter2") || strings.Contains(got.err, "operator") {
				t.Errorf("a secret is shown: %s", got.err)
			}
		})
	}
}

// What is in Redis is shown while Postgres is away, which is when it matters.
func TestStreamsAreShownWithoutPostgres(t *testing.T) {
	t.Parallel()
	settings := []string{
		"DATABASE_URL=postgres://operator:hunter2@127.0.0.1:1/sluice",
		"REDIS_URL=" + testkit.PrivateRedis(t).URL(),
	}
	for _, command := range []string{"stream", "pending", "workers"} {
		got := sluice(t, settings, command)
		if got.code != 0 || got.out == "" || !strings.Contains(got.err, "Postgres does not answer") ||
			strings.Contains(got.err, "hunter2") {
			t.Errorf("%s: got %+v, want the listing and a note", command, got)
		}
	}
	sluice(t, append(settings, "START_TIMEOUT=300ms"), "audit").mustRefuse(t, 1, "Postgres", "does not answer")
}

// dev refuses wrong settings before it starts anything.
func TestDevWithWrongSettings(t *testing.T) {
	t.Parallel()
	got := sluice(t, []string{"LOG_LEVEL=loud", "LOCK_TTL=1s"}, "dev")
	if got.code != 2 || !strings.Contains(got.err, "LOG_LEVEL") || !strings.Contains(got.err, "LOCK_TTL") ||
		strings.Contains(got.out, "starting") {
		t.Errorf("got %+v, want both refused at once", got)
	}
	got = sluice(t, nil, "dev", "--http-addr", "0.0.0.0:0")
	if got.code != 1 || !strings.Contains(got.err, "AUTH_MODE=dev") {
		t.Errorf("got %+v, want the API's own words", got)
	}
	got = sluice(t, []string{"SLUICE_REDIS_SERVER=/nowhere"}, "dev")
	if got.code != 1 || !strings.Contains(got.err, "SLUICE_REDIS_SERVER") || strings.Count(got.err, "\n") != 1 {
		t.Errorf("got %+v, want one sentence about the server that is missing", got)
	}
}

func TestHelpIsFine(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--help"}, {"sale", "--help"}, {"sale", "create", "--help"}, {"demo", "-h"}} {
		if out := sluice(t, nil, args...).mustFine(t); !strings.HasPrefix(out, "Usage: sluice") {
			t.Errorf("%v: got %q, want the usage", args, out)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if out := sluice(t, nil, "version").mustFine(t); !strings.HasPrefix(out, "sluice ") {
		t.Errorf("got %q, want the name and the version", out)
	}
	got := decoded[map[string]string](t, sluice(t, nil, "version", "--json").mustFine(t))
	if got["version"] == "" || !strings.HasPrefix(got["go"], "go1.") {
		t.Errorf("got %v, want both versions", got)
	}
}

// TestTheActorHasAName: the audit log says who it was also where the system has no name for the user.
func TestTheActorHasAName(t *testing.T) {
	t.Setenv("SLUICE_ACTOR", "ann@example.com")
	if got := actor(); got != "cli:ann@example.com" {
		t.Errorf("got %q, want the name that was given", got)
	}
	t.Setenv("SLUICE_ACTOR", strings.Repeat("x", 200)+"\xff")
	if got := actor(); len(got) != maxActorBytes {
		t.Errorf("got %d bytes, want %d", len(got), maxActorBytes)
	}
	t.Setenv("SLUICE_ACTOR", "")
	host, err := os.Hostname()
	must(t, err)
	if got := actor(); !strings.HasSuffix(got, "@"+host) || strings.HasPrefix(got, "cli:@") ||
		strings.Contains(got, "unknown") {
		t.Errorf("got %q, want the user and the host", got)
	}
	t.Setenv("SLUICE_ACTOR", strings.Repeat("x", maxActorBytes-len("cli:")-1)+"é")
	if got := actor(); pipeline.ValidateActor(got) != nil {
		t.Errorf("got %q, which the audit log refuses", got)
	}
}
