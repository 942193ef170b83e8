package main

import (
	"bytes"
	"go/format"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// root is the root of the tree, from this folder.
const root = "../.."

// TestDefectsApply compares every defect with the tree, and with the guide that says what became of it.
func TestDefectsApply(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile(filepath.Join(root, "docs", "chaos.md"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i := range defects {
		d := &defects[i]
		if seen[d.name] {
			t.Errorf("%s is there twice", d.name)
		}
		seen[d.name] = true
		if !bytes.Contains(guide, []byte("| `"+d.name+"` |")) {
			t.Errorf("docs/chaos.md has no row that begins with `%s`", d.name)
		}
		broken, err := d.apply(root)
		if err != nil {
			t.Error(err)
			continue
		}
		for file, text := range broken {
			whole, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Equal(text, whole) {
				t.Errorf("%s changes nothing in %s", d.name, file)
			}
			if !strings.HasSuffix(file, ".go") {
				continue
			}
			if _, err := format.Source(text); err != nil {
				t.Errorf("%s leaves no Go in %s: %v", d.name, file, err)
			}
		}
	}
}

// TestADefectThatRotsIsReported: lines that are gone, or there twice, are reported with what to do.
func TestADefectThatRotsIsReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.lua"), []byte("one two two"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, old := range []string{"two", "three"} {
		d := defect{name: "d", edits: []edit{{"x.lua", old, "x"}}}
		if _, err := d.apply(dir); err == nil || !strings.Contains(err.Error(), "say in chaos/defects") {
			t.Errorf("%q: got %v, want an error that says what to do", old, err)
		}
	}
	d := defect{name: "d", edits: []edit{{"x.lua", "one", "1"}, {"x.lua", "1 two", "2"}}}
	broken, err := d.apply(dir)
	if got := string(broken["x.lua"]); err != nil || got != "2 two" {
		t.Errorf("got %q, %v, want both edits", got, err)
	}
}
