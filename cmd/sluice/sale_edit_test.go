package main

import (
	"strings"
	"testing"
)

func TestSaleEdit(t *testing.T) {
	t.Parallel()
	at := servers(t)
	sluice(t, at, "sale", "create", "--id", "drop-1", "--stock", "100", "--payment-window", "15m", "--price", "1999",
		"--currency", "EUR", "--note", "a trial").mustFine(t)
	out := sluice(t, at, "sale", "edit", "drop-1", "--title", "Lamp", "--price", "2499", "--max-quantity", "2",
		"--waitlist", "5", "--closes", "+2h", "--note", "agreed on Monday", "--if-version", "1").mustFine(t)
	for _, says := range []string{
		"drop-1 is edited", "Lamp", "24.99 EUR per unit", "earlier orders keep theirs", "1 order of at most 2",
		"0 waiting, of at most 5", "agreed on Monday", "version",
	} {
		if !strings.Contains(out, says) {
			t.Errorf("got %q, want %q", out, says)
		}
	}
	if sale := show(t, at); sale.Version != 2 || *sale.UnitPrice != 2499 || sale.PriceFrom == nil ||
		sale.Note != "agreed on Monday" || sale.Partitions[0].Version != 2 {
		t.Errorf("got %+v", sale)
	}
	sluice(t, at, "sale", "edit", "drop-1").mustRefuse(t, 2, "nothing to change")
	sluice(t, at, "sale", "edit", "drop-1", "--if-version", "-1", "--title", "x").mustRefuse(t, 2, "begin at 1")
	sluice(t, at, "sale", "edit", "drop-1", "--opens", "soon").mustRefuse(t, 2, "soon")
	sluice(t, at, "sale", "edit", "drop-1", "--title", "x", "--if-version", "1").mustRefuse(t, 2, "is at version 2")
	sluice(t, at, "sale", "edit", "none", "--title", "x").mustRefuse(t, 2, "none")
	sluice(t, at, "sale", "edit", "drop-1", "--note", "").mustFine(t)

	for range 2 {
		if out := sluice(t, at, "sale", "reduce", "drop-1", "--to", "40").mustFine(t); !strings.Contains(out, "40 in all") {
			t.Errorf("got %q, want 40 units", out)
		}
	}
	sluice(t, at, "sale", "reschedule", "drop-1", "--opens", "2020-01-01T00:00:00Z", "--closes", "2020-01-02T00:00:00Z").
		mustRefuse(t, 2, "close the sale to end it now")
	sluice(t, at, "sale", "reduce", "drop-1", "--to", "0").mustRefuse(t, 2, "--to 0")
	sluice(t, at, "sale", "reduce", "drop-1", "--to", "41").mustRefuse(t, 2, "use 1 to 40")
	sluice(t, at, "audit").mustFine(t)
	logged(t, at, "create edit edit begin-reduce reduce")
}
