// Package internal_test checks the documents against the tree.
package internal_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	namedTest   = regexp.MustCompile("`(Test[A-Z]\\w+)`")
	definedTest = regexp.MustCompile(`(?m)^func (Test[A-Z]\w+)\(t \*testing\.T\)`)
	invariant   = regexp.MustCompile(`(?m)^\| (I\d+) \|.*\|$`)
	mdLink      = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	namedFile   = regexp.MustCompile("`([\\w./*-]+\\.(?:go|lua|sql|sh|ya?ml))`")
	placeholder = regexp.MustCompile(`^(.*/)?(x(_test)?\.\w+|\d*NN_\w+\.sql)$`) // of the lists in CONTRIBUTING.md
	picture     = regexp.MustCompile("(?s)```mermaid\nflowchart (.*?)```")
)

// TestEveryInvariantNamesItsTests checks that each invariant names a test; TestNamedTestsExist, that it exists.
func TestEveryInvariantNamesItsTests(t *testing.T) {
	t.Parallel()
	rows := invariant.FindAllStringSubmatch(read(t, "../ARCHITECTURE.md"), -1)
	if len(rows) != 10 {
		t.Fatalf("ARCHITECTURE.md lists %d invariants, want 10", len(rows))
	}
	for _, row := range rows {
		if !namedTest.MatchString(row[0]) {
			t.Errorf("%s names no test", row[1])
		}
	}
}

// TestNamedTestsExist checks that each test that a document names exists.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	defined := map[string]bool{}
	walk(t, "_test.go", func(path string) {
		for _, match := range definedTest.FindAllStringSubmatch(read(t, path), -1) {
			defined[match[1]] = true
		}
	})
	names := 0
	walk(t, ".md", func(path string) {
		for _, name := range namedTest.FindAllStringSubmatch(read(t, path), -1) {
			names++
			if !defined[name[1]] {
				t.Errorf("%s names %s, which does not exist", path, name[1])
			}
		}
	})
	if names < 50 {
		t.Errorf("found only %d names of tests", names)
	}
}

// TestNamedFilesExist checks that each source file that a document names exists: a path from the root of the tree, or
// a bare file name from anywhere. The changelog is left out, because it speaks of the past.
func TestNamedFilesExist(t *testing.T) {
	t.Parallel()
	var paths []string
	walk(t, "", func(path string) {
		paths = append(paths, strings.TrimPrefix(path, "../"))
	})
	exists := func(name string) bool {
		return slices.ContainsFunc(paths, func(path string) bool {
			if !strings.Contains(name, "/") {
				path = filepath.Base(path)
			}
			matched, err := filepath.Match(name, path)
			return err == nil && matched
		})
	}
	names := 0
	walk(t, ".md", func(path string) {
		if path == "../CHANGELOG.md" {
			return
		}
		for _, name := range namedFile.FindAllStringSubmatch(read(t, path), -1) {
			if placeholder.MatchString(name[1]) {
				continue
			}
			names++
			if !exists(name[1]) {
				t.Errorf("%s names %s, which does not exist", path, name[1])
			}
		}
	})
	if names < 50 {
		t.Errorf("found only %d names of files", names)
	}
}

// TestLinksLeadSomewhere checks that the file of every relative link in a document exists.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	links := 0
	walk(t, ".md", func(path string) {
		for _, link := range mdLink.FindAllStringSubmatch(read(t, path), -1) {
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

// TestThePictureShowsTheRooms checks that the picture in ARCHITECTURE.md has the arrows between the packages of
// pipeline/, and no others. It leaves out the packages that every room uses, and those that use every room.
func TestThePictureShowsTheRooms(t *testing.T) {
	t.Parallel()
	rooms := map[string]bool{}
	entries, err := os.ReadDir("../pipeline")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		rooms[entry.Name()] = entry.IsDir()
	}
	for _, leftOut := range []string{"metrics", "pipelinetest", "redisstore", "retry"} {
		delete(rooms, leftOut)
	}
	got, want := drawnArrows(t, rooms), importedArrows(t, rooms)
	for arrow := range want {
		if !got[arrow] {
			t.Errorf("the picture lacks %s", arrow)
		}
	}
	for arrow := range got {
		if !want[arrow] {
			t.Errorf("the picture shows %s, which no file imports", arrow)
		}
	}
	if len(want) == 0 {
		t.Error("found no arrow")
	}
}

// drawnArrows reads lines such as "a --> b & c --> d".
func drawnArrows(t *testing.T, rooms map[string]bool) map[string]bool {
	t.Helper()
	text := picture.FindStringSubmatch(read(t, "../ARCHITECTURE.md"))
	if text == nil {
		t.Fatal("ARCHITECTURE.md has no flowchart")
	}
	arrows := map[string]bool{}
	for line := range strings.Lines(text[1]) {
		ends := strings.Split(strings.TrimSpace(line), " --> ")
		for i, end := range ends[1:] {
			for from := range strings.SplitSeq(ends[i], " & ") {
				for to := range strings.SplitSeq(end, " & ") {
					if rooms[from] && rooms[to] {
						arrows[from+" --> "+to] = true
					}
				}
			}
		}
	}
	return arrows
}

func importedArrows(t *testing.T, rooms map[string]bool) map[string]bool {
	t.Helper()
	arrows := map[string]bool{}
	files, err := filepath.Glob("../pipeline/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		from := filepath.Base(filepath.Dir(path))
		if !rooms[from] || strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			if to, ok := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), "sluice/pipeline/"); ok && rooms[to] {
				arrows[from+" --> "+to] = true
			}
		}
	}
	return arrows
}

// walk visits the repository's files whose names end so, without hidden folders and test data.
func walk(t *testing.T, ending string, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".."
		if entry.IsDir() && (hidden || entry.Name() == "testdata") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ending) && !entry.IsDir() {
			visit(path)
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

var (
	definedSetting = regexp.MustCompile(`name: "([A-Z][A-Z_]+)"`)
	composeSetting = regexp.MustCompile(`(?m)^ +([A-Z][A-Z_]+):`)
)

// TestComposePassesEverySettingOn: what a user sets beside docker-compose.yml reaches the programs.
func TestComposePassesEverySettingOn(t *testing.T) {
	t.Parallel()
	passed := map[string]bool{}
	for _, match := range composeSetting.FindAllStringSubmatch(read(t, "../docker-compose.yml"), -1) {
		passed[match[1]] = true
	}
	defined := ""
	walk(t, ".go", func(path string) {
		if strings.HasPrefix(path, "../internal/config/") && !strings.HasSuffix(path, "_test.go") {
			defined += read(t, path)
		}
	})
	names := definedSetting.FindAllStringSubmatch(defined, -1)
	if len(names) < 20 {
		t.Fatalf("found only %d settings", len(names))
	}
	for _, name := range names {
		if !passed[name[1]] {
			t.Errorf("docker-compose.yml does not pass %s on", name[1])
		}
	}
}
