package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/testkit"
)

// Every listing is called ls; list, which some were called, still works. An order is named first and its sale with
// --sale; the other way round, which show had, still works.
func TestOneFormOfCommands(t *testing.T) {
	t.Parallel()
	at := servers(t)
	sluice(t, at, "sale", "create", "--id", "drop-1", "--stock", "10").mustFine(t)
	folder := t.TempDir()
	for _, subject := range []string{"sale", "order", "payment", "dead-letter", "event", "endpoint"} {
		ls, list := sluice(t, at, subject, "ls", "--json"), sluice(t, at, subject, "list", "--json")
		if ls.mustFine(t) != list.mustFine(t) {
			t.Errorf("%s: ls and list differ", subject)
		}
		if help := sluice(t, nil, subject, "--help").mustFine(t); !strings.Contains(help, "\n  "+subject+" ls") {
			t.Errorf("%s: the help does not name ls:\n%s", subject, help)
		}
	}
	if ls, list := sluice(t, nil, "journal", "ls", folder), sluice(t, nil, "journal", "list", folder); ls != list {
		t.Errorf("journal: got %+v and %+v", ls, list)
	}

	id := accept(t, at, testkit.Client(t, setting(at, "REDIS_URL")), "ann")
	form := sluice(t, at, "order", "show", id, "--sale", "drop-1", "--json").mustFine(t)
	if old := sluice(t, at, "order", "show", "drop-1", id, "--json").mustFine(t); old != form {
		t.Errorf("the old form shows %s, the new one %s", old, form)
	}
	sluice(t, at, "order", "show", id).mustRefuse(t, 2, "--sale", "queued")
	sluice(t, at, "order", "show", "drop-1", id, "--sale", "drop-1").mustRefuse(t, 2, "--sale")
	sluice(t, at, "order", "show", "drop-1").mustRefuse(t, 2, "UUID")
	stop := startWorker(t, at)
	defer stop()
	testkit.Eventually(t, commandLimit, "the order to be found by its id alone",
		func() bool { return sluice(t, at, "order", "show", id).code == 0 })
	for _, verb := range []string{"pay", "cancel", "return", "extend", "show"} {
		if help := sluice(t, nil, "order", verb, "--help").mustFine(t); !strings.Contains(help, "<order>") ||
			!strings.Contains(help, "--sale=ID") {
			t.Errorf("order %s has another form:\n%s", verb, help)
		}
	}
}

// What is printed to be copied names a program that is there.
func TestProgramName(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	folder := t.TempDir()
	t.Setenv("PATH", folder)
	if got := programName(); got != os.Args[0] {
		t.Errorf("without it on the PATH: got %q, want %q", got, os.Args[0])
	}
	must(t, os.WriteFile(filepath.Join(folder, "sluice"), []byte("#!/bin/sh\n"), 0o700))
	if got := programName(); got != os.Args[0] {
		t.Errorf("with another on the PATH: got %q, want %q", got, os.Args[0])
	}
	must(t, os.Remove(filepath.Join(folder, "sluice")))
	must(t, os.Symlink(self, filepath.Join(folder, "sluice")))
	if got := programName(); got != "sluice" {
		t.Errorf("on the PATH: got %q, want sluice", got)
	}
}
