package main

import (
	"strings"
	"testing"

	"sluice/internal/testkit"
	"sluice/internal/view"
)

// The life of a token, as an operator leads it: its text is shown once and stored nowhere, and the log says who made
// and who revoked it.
func TestTokens(t *testing.T) {
	t.Parallel()
	at := []string{"DATABASE_URL=" + testkit.Database(t), "SLUICE_ACTOR=eve"}
	if out := sluice(t, at, "token", "ls").mustFine(t); !strings.Contains(out, "No tokens") {
		t.Errorf("ls: got %q", out)
	}
	sluice(t, at, "token", "add", "ann").mustRefuse(t, 2, "--role")
	sluice(t, at, "token", "add", "ann", "--role", "root").mustRefuse(t, 2, "read, operate, admin")
	sluice(t, at, "token", "add", "cli:ann", "--role", "read").mustRefuse(t, 2, "name")
	sluice(t, at, "token", "add", "ann", "--role", "read", "--expires", "2020-01-01T00:00:00Z").
		mustRefuse(t, 2, "has passed")
	sluice(t, at, "token", "add", "ann", "--role", "read", "--expires", "+9000h").mustRefuse(t, 2, "366 days")
	sluice(t, at, "token", "revoke", "aaaaaaaaaaaaaaaa").mustRefuse(t, 2, "sluice token ls")

	added := decoded[view.Token](t, sluice(t, at, "token", "add", "ann", "--role", "operate", "--json").mustFine(t))
	if !strings.HasPrefix(added.Text, "sluice_"+added.ID+"_") || added.State != "valid" || added.CreatedBy != "cli:eve" {
		t.Errorf("add: got %+v", added)
	}
	secret := added.Text[strings.LastIndexByte(added.Text, '_')+1:]
	if out := sluice(t, at, "token", "ls", "--json").mustFine(t); strings.Contains(out, secret) ||
		!strings.Contains(out, added.ID) {
		t.Errorf("ls: got %q", out)
	}
	if out := sluice(t, at, "token", "revoke", added.ID).mustFine(t); !strings.Contains(out, "within 5s") {
		t.Errorf("revoke: got %q", out)
	}
	if out := sluice(t, at, "token", "revoke", added.ID).mustFine(t); !strings.Contains(out, "was revoked before, by cli:eve") {
		t.Errorf("revoke again: got %q", out)
	}
	if out := sluice(t, at, "token", "ls").mustFine(t); !strings.Contains(out, "No tokens") {
		t.Errorf("ls: got %q", out)
	}
	if out := sluice(t, at, "token", "ls", "--all").mustFine(t); !strings.Contains(out, "revoked") {
		t.Errorf("ls --all: got %q", out)
	}
	log := sluice(t, at, "log", "--json").mustFine(t)
	if strings.Count(log, `"add-token"`) != 1 || strings.Count(log, `"revoke-token"`) != 1 || strings.Contains(log, secret) {
		t.Errorf("log: got %s", log)
	}
}
