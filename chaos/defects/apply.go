package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// apply returns the broken text of each file that a defect changes, by its path below the root of the tree.
func (d *defect) apply(root string) (map[string][]byte, error) {
	broken := map[string][]byte{}
	for _, e := range d.edits {
		text, changed := broken[e.file]
		if !changed {
			var err error
			if text, err = os.ReadFile(filepath.Join(root, e.file)); err != nil {
				return nil, fmt.Errorf("%s: %w", d.name, err)
			}
		}
		if n := bytes.Count(text, []byte(e.old)); n != 1 {
			return nil, fmt.Errorf(
				"%s: %s has these lines %d times, want once; say in chaos/defects how they can be broken now:\n%s",
				d.name, e.file, n, e.old)
		}
		broken[e.file] = bytes.Replace(text, []byte(e.old), []byte(e.new), 1)
	}
	return broken, nil
}

// overlay writes the broken files below dir and returns the file that makes go build take them in place of the tree's.
func (d *defect) overlay(root, dir string) (string, error) {
	broken, err := d.apply(root)
	if err != nil {
		return "", err
	}
	root, err = filepath.Abs(root)
	if err != nil {
		return "", err
	}
	replaced := map[string]string{}
	for file, text := range broken {
		to := filepath.Join(dir, fmt.Sprintf("%d-%s", len(replaced), filepath.Base(file)))
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return "", err
		}
		replaced[filepath.Join(root, file)] = to
	}
	list, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, list, 0o600)
}
