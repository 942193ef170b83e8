package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
)

const (
	tree = "testdata/house"

	report = `package             files  lines  tests  lines  exported  longest file    most parameters  arrows  circles  back
pipeline            3      28     1      11     4         11 order.go     3 at             3       2        1
pipeline/admission  1      5      0      0      1         5 admission.go  0                0       0        0
pipeline/worker     1      5      0      0      1         5 worker.go     0                0       0        0
chaos               1      8      0      0      0         8 chaos.go      0                0       0        0

arrows between the packages of pipeline:
  pipeline → pipeline/worker
  pipeline/admission → pipeline
  pipeline/worker → pipeline
imports that are part of a circle, in the whole tree: 2

lines: product 38, harness 8, tests 11
`
)

// TestReport: a small tree whose numbers can be counted by hand gives these.
func TestReport(t *testing.T) {
	t.Parallel()
	var out, complaints bytes.Buffer
	if code := run(tree, false, &out, &complaints); code != 0 || complaints.Len() > 0 {
		t.Errorf("exit code %d, want 0; %s", code, &complaints)
	}
	if got := trimmed(out.String()); got != report {
		t.Errorf("got\n%s\nwant\n%s", got, report)
	}
}

// trimmed is a text without blanks at the ends of its lines.
func trimmed(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return strings.Join(lines, "\n")
}

// TestEachLimit: with every other limit out of reach, each one is exceeded by what the tree has, and not by one less.
func TestEachLimit(t *testing.T) {
	t.Parallel()
	circle := []string{
		"pipeline → pipeline/worker: part of a circle",
		"pipeline/worker → pipeline: part of a circle",
	}
	for _, test := range []struct {
		name   string
		change func(*limit)
		want   []string
	}{
		{"none", func(*limit) {}, nil},
		{"exported", func(l *limit) { l.exported = 3 }, []string{"pipeline: exported symbols: 4, at most 3"}},
		{"exported, just kept", func(l *limit) { l.exported = 4 }, nil},
		{"lines", func(l *limit) { l.codeLines = 10 }, []string{"pipeline/order.go: lines: 11, at most 10"}},
		{"lines, just kept", func(l *limit) { l.codeLines = 11 }, nil},
		{"lines of tests", func(l *limit) { l.testLines = 10 }, []string{"pipeline/gate_test.go: lines: 11, at most 10"}},
		{"lines of tests, just kept", func(l *limit) { l.testLines = 11 }, nil},
		{"parameters", func(l *limit) { l.parameters = 2 }, []string{
			"pipeline/clock.go: parameters of at: 3, at most 2",
			"pipeline/gate_test.go: parameters of clockAt: 4, at most 2",
		}},
		{"parameters, just kept", func(l *limit) { l.parameters = 4 }, nil},
		{"parameters of a method", func(l *limit) { l.parameters = 1 }, []string{
			"pipeline/clock.go: parameters of at: 3, at most 1",
			"pipeline/order.go: parameters of status[T].Closed: 2, at most 1",
			"pipeline/gate_test.go: parameters of clockAt: 4, at most 1",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h, err := measure(os.DirFS(tree))
			if err != nil {
				t.Fatal(err)
			}
			l := limit{exported: 100, codeLines: 100, testLines: 100, parameters: 100}
			test.change(&l)
			if got, want := h.breaches(l), slices.Concat(test.want, circle); !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// TestExitCodes: a tree with a circle breaks a limit, one without does not, and no tree is an error.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	tidy := t.TempDir()
	if err := os.WriteFile(tidy+"/go.mod", []byte("module tidy\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]int{tree: 1, tidy: 0, "testdata": 1} {
		var out, complaints bytes.Buffer
		if got := run(dir, true, &out, &complaints); got != want {
			t.Errorf("%s: exit code %d, want %d; %s", dir, got, want, &complaints)
		}
		if failed := complaints.Len() > 0; failed != (dir == "testdata") {
			t.Errorf("%s: complaints %q", dir, &complaints)
		}
	}
}

// TestHarnessIsThere: a folder that has moved would silently be counted as product.
func TestHarnessIsThere(t *testing.T) {
	t.Parallel()
	for _, folder := range harness {
		if _, err := os.Stat("../../" + folder); err != nil {
			t.Error(err)
		}
	}
}

// TestThisHouse: nothing in the repository exceeds a limit.
func TestThisHouse(t *testing.T) {
	t.Parallel()
	h, err := measure(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, breach := range h.breaches(limits) {
		t.Error(breach)
	}
}
