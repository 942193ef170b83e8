package main

import (
	"strings"
	"testing"

	"sluice/internal/view"
)

// Who did what to a sale, when, and what it was before.
func TestOperatorReadsTheAuditLog(t *testing.T) {
	t.Parallel()
	at := servers(t)
	as := func(name string) []string { return append([]string{"SLUICE_ACTOR=" + name}, at...) }
	if out := sluice(t, at, "log").mustFine(t); !strings.Contains(out, "No such lines") {
		t.Errorf("an empty log: got %q", out)
	}
	sluice(t, as("ann"), "sale", "create", "--id", "drop-1", "--stock", "10").mustFine(t)
	sluice(t, as("bob"), "sale", "restock", "drop-1", "--add", "5").mustFine(t)
	sluice(t, at, "sale", "pause", "drop-1").mustFine(t)
	out := sluice(t, at, "log", "--sale", "drop-1").mustFine(t)
	for _, says := range []string{"cli:bob", "total 10 → 15", "state active → paused", "max_quantity 1,"} {
		if !strings.Contains(out, says) {
			t.Errorf("got %q, want it to say %q", out, says)
		}
	}
	if strings.Index(out, "pause") > strings.Index(out, "restock") {
		t.Errorf("got %q, want the newest line first", out)
	}
	list := func(more ...string) []view.LogEntry {
		t.Helper()
		return decoded[[]view.LogEntry](t, sluice(t, at, append([]string{"log", "--json"}, more...)...).mustFine(t))
	}
	if got := list("--actor", "cli:bob"); len(got) != 1 || got[0].Action != "restock" ||
		!strings.Contains(string(got[0].Before), `"total": 10`) {
		t.Errorf("by actor: got %+v", got)
	}
	all := list()
	if len(all) != 3 || !strings.HasPrefix(all[0].Actor, "cli:") || !strings.Contains(all[0].Actor, "@") {
		t.Errorf("all: got %+v", all)
	}
	if got := list("--after", all[0].ID, "--since", "1h", "--limit", "1"); len(got) != 1 || got[0].ID != all[1].ID {
		t.Errorf("a page: got %+v", got)
	}
	sluice(t, at, "log", "--action", "No").mustRefuse(t, 2, "action")
	sluice(t, at, "log", "--limit", "501").mustRefuse(t, 2, "limit 501")
	sluice(t, at, "log", "--since", "yesterday").mustRefuse(t, 2, "--since yesterday", "2h")
}
