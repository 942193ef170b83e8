package main

import (
	"strings"
	"testing"
)

const testEntryKeys = "ENTRY_TICKET_KEYS=k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

// A sale that needs entry tickets says so, and what the apis need for it is said where it may be missing.
func TestSaleWithEntryTickets(t *testing.T) {
	t.Parallel()
	at := servers(t)
	created := sluice(t, at, "sale", "create", "--id", "drop-1", "--stock", "5", "--entry-ticket", "--entry-spread", "30s")
	if out := created.mustFine(t); !strings.Contains(out, "needed; buyers are let in over 30s") ||
		!strings.Contains(created.err, "start every api with ENTRY_TICKET_KEYS") {
		t.Errorf("got %q and %q", out, created.err)
	}
	got := sluice(t, at, "doctor")
	if got.code != 1 || !strings.Contains(got.out, "needed by drop-1; 0 keys here") {
		t.Errorf("got %+v, want the keys to be missing", got)
	}
	sluice(t, append(at, testEntryKeys), "doctor").mustFine(t)
	if sale := show(t, at); !sale.EntryTicket || sale.EntrySpreadSeconds != 30 {
		t.Errorf("got %+v", sale)
	}
	edited := sluice(t, at, "sale", "edit", "drop-1", "--no-entry-ticket", "--entry-spread", "1m").mustFine(t)
	if sale := show(t, at); sale.EntryTicket || sale.EntrySpreadSeconds != 60 || strings.Contains(edited, "entry ticket") {
		t.Errorf("got %+v, %s", sale, edited)
	}
	sluice(t, at, "doctor").mustFine(t)
	again := sluice(t, append(at, testEntryKeys), "sale", "edit", "drop-1", "--entry-ticket")
	if out := again.mustFine(t); !strings.Contains(out, "over 1m0s") || again.err != "" {
		t.Errorf("got %q and %q", out, again.err)
	}
	sluice(t, at, "sale", "edit", "drop-1", "--entry-spread", "11m").mustRefuse(t, 2, "entry spread 11m0s")
	sluice(t, at, "sale", "create", "--id", "drop-2", "--stock", "5", "--entry-spread", "1500ms").mustRefuse(t, 2,
		"in whole seconds")
}
