// Package internal_test checks the documents against the tree.
package internal_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedTest   = regexp.MustCompile("`(Test[A-Z]\\w+)`")
	definedTest = regexp.MustCompile(`(?m)^func (Test[A-Z]\w+)\(t \*testing\.T\)`)
	invariant   = regexp.MustCompile(`(?m)^\| (I\d) \|.*\|$`)
	mdLink      = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
)

// TestEveryInvariantNamesItsTests checks that each invariant has tests, and that each test it names exists.
func TestEveryInvariantNamesItsTests(t *testing.T) {
	t.Parallel()
	defined := definedTests(t)
	rows := invariant.FindAllStringSubmatch(read(t, "../ARCHITECTURE.md"), -1)
	if len(rows) != 9 {
		t.Fatalf("ARCHITECTURE.md lists %d invariants, want 9", len(rows))
	}
	for _, row := range rows {
		names := namedTest.FindAllStringSubmatch(row[0], -1)
		if len(names) == 0 {
			t.Errorf("%s names no test", row[1])
		}
		for _, name := range names {
			if !defined[name[1]] {
				t.Errorf("%s names %s, which does not exist", row[1], name[1])
			}
		}
	}
}

// TestLinksLeadSomewhere checks that the file of every relative link in a document exists.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	links := 0
	walk(t, ".md", func(path, text string) {
		for _, link := range mdLink.FindAllStringSubmatch(text, -1) {
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), link[1])); err != nil {
				t.Errorf("%s links to %s, which does not exist", path, link[1])
			}
		}
	})
	if links < 10 {
		t.Errorf("found only %d links", links)
	}
}

func definedTests(t *testing.T) map[string]bool {
	t.Helper()
	defined := map[string]bool{}
	walk(t, "_test.go", func(_, text string) {
		for _, match := range definedTest.FindAllStringSubmatch(text, -1) {
			defined[match[1]] = true
		}
	})
	return defined
}

// walk visits the repository's files whose names end so.
func walk(t *testing.T, ending string, visit func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ending) && !entry.IsDir() {
			visit(path, read(t, path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
