package main

import (
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
)

// A command that is repeated with its key is done once, and prints the same again.
func TestACommandWithAKeyIsDoneOnce(t *testing.T) {
	t.Parallel()
	at := servers(t)
	with := func(key string, args ...string) outcome {
		return sluice(t, at, append(args, "--idempotency-key", key)...)
	}
	create := []string{"sale", "create", "--id", "drop-1", "--stock", "10", "--payment-window", "0"}
	first := with("k0", create...)
	first.mustFine(t)
	if again := with("k0", create...); again != first {
		t.Errorf("create again: got %+v, want %+v", again, first)
	}
	restock := []string{"sale", "restock", "drop-1", "--add", "5", "--json"}
	first = with("k1", restock...)
	first.mustFine(t)
	sluice(t, at, "sale", "pause", "drop-1").mustFine(t)
	if again := with("k1", restock...); again != first {
		t.Errorf("restock again: got %+v, want %+v", again, first)
	}
	with("k1", "sale", "restock", "drop-1", "--add", "6", "--json").mustRefuse(t, 2, "used before", "new key")
	with("k1", "sale", "close", "drop-1").mustRefuse(t, 2, "used before")
	with("k9", "sale", "extend", "drop-1", "--until", "+1h", "--reason", "r").mustRefuse(t, 2, "RFC 3339")
	with("", restock...).mustRefuse(t, 2, "--idempotency-key", "1 to 255")
	with("k6", "sale", "resume", "drop-1").mustFine(t)
	with("k6", "sale", "pause", "drop-1").mustRefuse(t, 2, "used before")

	// It died after the change, and before it could keep what it prints.
	execSQL(t, at, `
		update operator_requests set answered_at = null, status = null, header = null, body = null,
			leased_until = now() - interval '1s'`)
	if out := with("k1", restock...).mustFine(t); !strings.Contains(out, `"total": 15`) {
		t.Errorf("after its death: got %q, want the sale with 15 units", out)
	}

	// What has a secret is read again, and not kept; what another change forbids for the moment is no answer.
	add := []string{"endpoint", "add", "--url", "https://example.com/hook"}
	first = with("k7", add...)
	first.mustFine(t)
	execSQL(t, at, `do $$ begin
		if exists (select from operator_requests where convert_from(body, 'UTF8') like '%whsec_%') then
			raise 'a secret is kept';
		end if; end $$`)
	if again := with("k7", add...); again != first || !strings.Contains(again.out, "whsec_") {
		t.Errorf("endpoint add again: got %+v, want %+v", again, first)
	}
	for range 2 {
		with("k8", "endpoint", "remove", "1").mustFine(t)
	}
	execSQL(t, at, `update sales set reduce_to = 12, reduce_actor = 'bob'`)
	edit := []string{"sale", "edit", "drop-1", "--title", "Lamp No. 8"}
	with("k10", edit...).mustRefuse(t, 2, "try again")
	execSQL(t, at, `update sales set reduce_to = null, reduce_actor = null`)
	with("k10", edit...).mustFine(t)

	// What was found wrong is an answer as well, with its exit code; what was typed wrong leaves the key free.
	rdb := testkit.Client(t, setting(at, "REDIS_URL"))
	id := accept(t, at, rdb, "ann")
	stop := startWorker(t, at)
	defer stop()
	testkit.Eventually(t, time.Minute, "the order to be stored", func() bool { return showOrder(t, at, id).Row != nil })
	pay := []string{"order", "pay", id, "--sale", "drop-1"}
	first = with("k2", pay...)
	if again := with("k2", pay...); again != first || again.code != 1 || !strings.Contains(again.out, "paid back") {
		t.Errorf("pay again: got %+v, want %+v", again, first)
	}
	if list := sluice(t, at, "payment", "ls", "--json").mustFine(t); strings.Count(list, `"payment_id"`) != 1 {
		t.Errorf("payments: got %s, want one", list)
	}
	with("k3", "sale", "restock", "drop-1", "--add", "-5").mustRefuse(t, 2, "--add -5")
	with("k3", "sale", "restock", "drop-1", "--add", "5").mustFine(t)
	if sale := show(t, at); sale.Total != 20 {
		t.Errorf("the total is %d, want 20", sale.Total)
	}
	sluice(t, nil, "sale", "show", "drop-1", "--idempotency-key", "k").mustRefuse(t, 2, "--idempotency-key")
}
