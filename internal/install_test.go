package internal_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMakeInstall: sluice is put where PREFIX says, and what is missing to call it is said.
func TestMakeInstall(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("there is no make")
	}
	tree, prefix := t.TempDir(), filepath.Join(t.TempDir(), "deep", "prefix")
	for name, text := range map[string]string{
		"Makefile": read(t, "../Makefile"), "bin/sluice": "#!/bin/sh\necho it is me\n",
	} {
		path := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	install := func(prefix, path string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "make", "--old-file=build", "install", "PREFIX="+prefix)
		cmd.Dir, cmd.Env = tree, append(os.Environ(), "PATH="+path)
		said, err := cmd.CombinedOutput()
		return string(said), err
	}
	said, err := install(prefix, os.Getenv("PATH"))
	if err != nil || !strings.Contains(said, "is not on your PATH") {
		t.Errorf("got %q, %v, want advice about the PATH", said, err)
	}
	said, err = install(prefix, os.Getenv("PATH")+":"+prefix+"/bin")
	if err != nil || strings.Contains(said, "is not on your PATH") {
		t.Errorf("on the PATH: got %q, %v, want no advice", said, err)
	}
	if answer, err := exec.CommandContext(t.Context(), filepath.Join(prefix, "bin", "sluice")).Output(); err != nil ||
		string(answer) != "it is me\n" {
		t.Errorf("what was installed: got %q, %v", answer, err)
	}
	file := filepath.Join(tree, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := install(file, os.Getenv("PATH")); err == nil || !strings.Contains(said, "PREFIX=$HOME/.local") {
		t.Errorf("where nothing can be written: got %q, %v, want another PREFIX", said, err)
	}
}
