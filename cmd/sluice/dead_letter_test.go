package main

import (
	"fmt"
	"strings"
	"testing"

	"sluice/db"
	"sluice/internal/testkit"
	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/deadletter"
)

// bury makes a dead letter of a foreign stream entry, and returns its id.
func bury(t *testing.T, at []string, entry string, payload map[string]any) string {
	t.Helper()
	store, err := db.Open(t.Context(), setting(at, "DATABASE_URL"), db.Options{MaxConns: 1})
	must(t, err)
	defer store.Close()
	sale, _ := payload["s"].(string)
	letter := deadletter.Message{
		Partition: 3, EntryID: entry, SaleID: sale, Payload: payload, Reason: deadletter.Undecodable,
		Error: "field k is missing", Deliveries: 1,
	}
	must(t, store.BuryEvent(t.Context(), letter, nil))
	letters, err := store.Letters(t.Context(), deadletter.Filter{})
	must(t, err)
	return fmt.Sprint(letters[len(letters)-1].ID)
}

// The life of two dead letters, as an operator leads it.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	at := servers(t)
	sluice(t, at, "sale", "create", "--id", "drop-1", "--stock", "10").mustFine(t)
	if out := sluice(t, at, "dead-letter", "ls").mustFine(t); !strings.Contains(out, "No dead letters") {
		t.Errorf("got %q, want no letters", out)
	}
	first := bury(t, at, "1-1", map[string]any{"s": "drop-1", "u": "alice", "q": "\x1b[2J"})
	second := bury(t, at, "1-2", map[string]any{"nonsense\xff": "\x00\xff", "long": strings.Repeat("x", 300)})

	list := func(args ...string) string {
		t.Helper()
		var ids []string
		for _, v := range decoded[[]view.Letter](t, sluice(t, at,
			append([]string{"dead-letter", "ls", "--json"}, args...)...).mustFine(t)) {
			ids = append(ids, v.ID)
		}
		return strings.Join(ids, " ")
	}
	both := first + " " + second
	for args, want := range map[string]string{
		"": both, "--sale drop-1": first, "--reason refused": "", "--limit 1": first, "--all": both,
		"--after " + first: second,
	} {
		if got := list(strings.Fields(args)...); got != want {
			t.Errorf("ls %s: got %q, want %q", args, got, want)
		}
	}
	if out := sluice(t, at, "dead-letter", "ls", "--limit", "1").mustFine(t); !strings.Contains(out, "undecodable") ||
		!strings.Contains(out, "--after "+first) {
		t.Errorf("ls: got %q", out)
	}
	for id, says := range map[string][]string{
		first:  {"undecodable", "drop-1", "p03 1-1", "field k is missing", `q = "\x1b[2J"`, "u = alice", "waits"},
		second: {"base64:", `{"base64":"AP8="}`, strings.Repeat("x", 300), "unknown"},
	} {
		out := sluice(t, at, "dead-letter", "show", id).mustFine(t)
		for _, text := range says {
			if !strings.Contains(out, text) {
				t.Errorf("show %s: got %q, want %q in it", id, out, text)
			}
		}
		if strings.Contains(out, "\x1b") {
			t.Errorf("foreign text reaches the terminal unescaped: %q", out)
		}
	}

	sluice(t, at, "dead-letter", "replay", first).mustRefuse(t, 2, "field q")
	sluice(t, at, "dead-letter", "replay", first, "--set", "q=2").mustRefuse(t, 2, "can't be replayed now",
		"allows in one order")
	sluice(t, at, "dead-letter", "replay", "99").mustRefuse(t, 2, "no dead letter 99", "sluice dead-letter ls")
	if out := sluice(t, at, "dead-letter", "replay", first, "--set", "q=1").mustFine(t); !strings.Contains(out,
		"is replayed as order") {
		t.Errorf("replay: got %q", out)
	}
	replayed := decoded[view.Letter](t, sluice(t, at, "dead-letter", "show", first, "--json").mustFine(t))
	if replayed.Resolution == nil || *replayed.Resolution != "replayed" || replayed.ReplayOrderID == nil ||
		replayed.ResolvedAt == nil {
		t.Fatalf("got %+v, want it replayed", replayed)
	}
	if out := sluice(t, at, "order", "show", "drop-1", *replayed.ReplayOrderID).mustFine(t); !strings.Contains(out,
		"alice") {
		t.Errorf("order show: got %q, want the order of alice", out)
	}
	discarded := decoded[view.Letter](t, sluice(t, at, "dead-letter", "discard", second, "--note", "not ours",
		"--json").mustFine(t))
	if discarded.Resolution == nil || *discarded.Resolution != "discarded" || discarded.Note != "not ours" {
		t.Errorf("got %+v, want it discarded", discarded)
	}
	sluice(t, at, "dead-letter", "replay", first).mustRefuse(t, 2, "was replayed at", *replayed.ReplayOrderID)
	sluice(t, at, "dead-letter", "discard", second).mustRefuse(t, 2, "was discarded at")
	if got := list(); got != "" {
		t.Errorf("ls: got %q, want nothing left", got)
	}
	if got := list("--all"); got != both {
		t.Errorf("ls --all: got %q, want %q", got, both)
	}
	logged(t, at, "create replay discard")
}

// A replay that Redis can't take is a failure, not a wrong use; and once the sale is rebuilt by hand it is taken. Only
// --apply changes anything.
func TestReplayIntoALostSale(t *testing.T) {
	t.Parallel()
	at := servers(t)
	sluice(t, at, "sale", "create", "--id", "drop-1", "--stock", "10").mustFine(t)
	id := bury(t, at, "1-1", map[string]any{"s": "drop-1", "u": "alice", "q": "1"})
	must(t, testkit.Client(t, setting(at, "REDIS_URL")).FlushAll(t.Context()).Err())
	sluice(t, at, "dead-letter", "replay", id).mustRefuse(t, 1, "Redis is being verified")
	for range 2 {
		if got := sluice(t, at, "rebuild", "--sale", "drop-1").mustFine(t); !strings.Contains(got, "absent") ||
			!strings.Contains(got, "Nothing was changed") {
			t.Errorf("a dry run: got %q", got)
		}
	}
	sluice(t, at, "dead-letter", "replay", id).mustRefuse(t, 1, "Redis is being verified")
	sluice(t, at, "rebuild", "--sale", "drop-1", "--apply").mustFine(t)
	sluice(t, at, "dead-letter", "replay", id).mustFine(t)
	sluice(t, at, "rebuild", "--sale", "drop-2").mustRefuse(t, 2, "drop-2")
	sluice(t, at, "sale", "create", "--id", "drop-3", "--stock", "10").mustFine(t)
	for _, args := range [][]string{{"rebuild", "--json"}, {"rebuild", "--apply", "--json"}} {
		if got := decoded[[]pipeline.RebuildReport](t, sluice(t, at, args...).mustFine(t)); len(got) != 2 {
			t.Errorf("%q: got %+v, want both sales", args, got)
		}
	}
}
