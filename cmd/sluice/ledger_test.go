package main

import (
	"strings"
	"testing"

	"sluice/internal/view"
)

// What an operator sees of a Postgres that never went back.
func TestOperatorLooksAtTheLedger(t *testing.T) {
	t.Parallel()
	at := servers(t)
	if out := sluice(t, at, "ledger").mustFine(t); !strings.Contains(out, "never found to have gone back") {
		t.Errorf("got %q", out)
	}
	if got := decoded[[]view.LedgerLoss](t, sluice(t, at, "ledger", "--json").mustFine(t)); len(got) != 0 {
		t.Errorf("got %+v", got)
	}
	sluice(t, at, "ledger", "--claims", "7").mustRefuse(t, 2, "no loss 7")
}
