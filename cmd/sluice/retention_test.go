package main

import (
	"strings"
	"testing"

	"sluice/internal/view"
)

// What an operator sees before any sale is due.
func TestOperatorLooksAtTheRetention(t *testing.T) {
	t.Parallel()
	at := servers(t)
	if out := sluice(t, at, "retention").mustFine(t); !strings.Contains(out, "No worker has said yet") ||
		!strings.Contains(out, "anything left to drop") {
		t.Errorf("got %q", out)
	}
	got := decoded[view.Retention](t, sluice(t, at, "retention", "--json").mustFine(t))
	if got.Policy != nil || len(got.Sales) != 0 || got.NextAfter != nil {
		t.Errorf("got %+v", got)
	}
	sluice(t, at, "retention", "--limit", "501").mustRefuse(t, 2, "limit 501")
	sluice(t, at, "retention", "--orders", "8760h").mustRefuse(t, 2, "--dry-run")
	sluice(t, at, "retention", "--dry-run", "--orders", "1h").mustRefuse(t, 2, "--orders 1h", "720h")
	sluice(t, at, "retention", "--dry-run").mustRefuse(t, 2, "for ever", "--orders 8760h")
	out := sluice(t, at, "retention", "--dry-run", "--orders", "8760h").mustFine(t)
	if !strings.Contains(out, "No sale is due") {
		t.Errorf("a dry run: got %q", out)
	}
}
