package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Documents are run as they are printed. A comment on the line before a block says what is special about it:
//
//	<!-- not run: why -->       nothing of it is run
//	<!-- until interrupted -->  it does not end by itself, and is interrupted after some seconds
//	<!-- output -->             it is what the block before prints; … stands for anything in a line, or for any lines
var special = regexp.MustCompile(`^\s*<!-- (not run: \S.*|until interrupted|output) -->$`)

// docBlock is a block of code in a document.
type docBlock struct {
	line          int // of its fence, from 1
	language      string
	text          string
	mark          string // of the comment before it
	expected      string // output; of a block that is run
	expectsOutput bool
}

// docBlocks returns the blocks of a document. What is indented, in a list, loses its indentation.
func docBlocks(document string) (blocks []docBlock) {
	var block *docBlock
	indent, mark := "", ""
	for i, line := range strings.Split(document, "\n") {
		fence, found := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case block != nil && found:
			blocks = append(blocks, *block)
			block = nil
		case block != nil:
			block.text += strings.TrimPrefix(line, indent) + "\n"
		case found:
			indent = line[:strings.Index(line, "`")]
			block = &docBlock{line: i + 1, language: fence, mark: mark}
			mark = ""
		default:
			mark = ""
			if match := special.FindStringSubmatch(line); match != nil {
				mark = match[1]
			}
		}
	}
	return blocks
}

// runnable returns the blocks of commands that are run, each with the output that it must have.
func runnable(blocks []docBlock) (runs []docBlock) {
	for _, b := range blocks {
		switch {
		case b.mark == "output" && len(runs) > 0:
			last := &runs[len(runs)-1]
			last.expected += b.text // a second one is compared as well
			last.expectsOutput = true
		case b.language == "sh" && !strings.HasPrefix(b.mark, "not run"):
			runs = append(runs, b)
		}
	}
	return runs
}

// blockMark begins the output of a block, and can't be part of any.
const blockMark = "\x01block\x01"

// docScript runs blocks one after the other in one shell, and ends at the first command that fails.
func docScript(blocks []docBlock) string {
	var b strings.Builder
	b.WriteString("set -aeuo pipefail\n") // a: what a block sets is there for one that is interrupted, too
	for _, block := range blocks {
		fmt.Fprintf(&b, "printf '%s'\n", strings.ReplaceAll(blockMark, "\x01", `\001`))
		if block.mark != "until interrupted" {
			b.WriteString(block.text)
			continue
		}
		quoted := "'" + strings.ReplaceAll(block.text, "'", `'\''`) + "'"
		fmt.Fprintf(&b, "code=0; timeout --signal=INT 5 bash -euc %s || code=$?; [[ $code == 124 ]]\n", quoted)
	}
	return b.String()
}

// sameOutput reports whether an output is what a document prints.
func sameOutput(expected, got string) bool {
	var pattern strings.Builder
	pattern.WriteString(`\A\s*`)
	for line := range strings.Lines(strings.TrimSpace(expected)) {
		line = strings.TrimRight(line, " \n")
		if line == "…" {
			pattern.WriteString(`(?:.*\n)*?`)
			continue
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + `\s*?(?:\n|\z)`)
	}
	pattern.WriteString(`\s*\z`)
	return regexp.MustCompile(pattern.String()).MatchString(strings.ReplaceAll(got, "\r", ""))
}

func TestSameOutput(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		expected, got string
		want          bool
	}{
		{"one\ntwo\n", "one\r\ntwo\n", true},
		{"one\ntwo\n", "one\ntwo\nthree\n", false},
		{"one\n…\nthree\n", "one\ntwo\n2.5\nthree\n", true},
		{"one\n…\n", "one\n", true},
		{"id …, status a\n", "id 12, status a\n", true},
		{"id …, status a\n", "id 12,\n status a\n", false},
		{"one (1)\n", "one 1\n", false},
		{"one\n", "", false},
	} {
		if got := sameOutput(c.expected, c.got); got != c.want {
			t.Errorf("%q for %q: got %t", c.got, c.expected, got)
		}
	}
}

// documents are those that users read, by path from the root, with their blocks.
func documents(t *testing.T) map[string][]docBlock {
	t.Helper()
	root := filepath.Join("..", "..")
	paths, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	must(t, err)
	found := map[string][]docBlock{}
	for _, path := range append(paths, filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")) {
		text, err := os.ReadFile(path)
		must(t, err)
		name, err := filepath.Rel(root, path)
		must(t, err)
		blocks := docBlocks(string(text))
		if marks := strings.Count(string(text), "<!-- "); marks != countMarks(blocks) {
			t.Errorf("%s has %d comments, and %d of them belong to a block", name, marks, countMarks(blocks))
		}
		if len(blocks) > 0 {
			found[name] = blocks
		}
	}
	return found
}

func countMarks(blocks []docBlock) (n int) {
	for _, block := range blocks {
		if block.mark != "" {
			n++
		}
	}
	return n
}

// TestDocsRunAsPrinted runs every command of every document, in the order in which they are printed, against a
// `sluice dev` of its own. Only the addresses differ, where those of the documents may be taken.
func TestDocsRunAsPrinted(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"bash", "curl", "openssl", "timeout"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the documents use %s", tool)
		}
	}
	commands := 0
	all := documents(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		blocks := runnable(all[name])
		commands += len(blocks)
		if len(blocks) > 0 {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				runDocument(t, name, blocks)
			})
		}
	}
	if commands < 20 {
		t.Errorf("only %d blocks of commands are run", commands)
	}
}

// docLimit bounds the commands of one document.
const docLimit = 5 * time.Minute

// docSettings are what the documents have their readers set before `make dev`.
var docSettings = []string{
	"ADMIN_TOKEN=an-admin-token-of-the-documents-1", "WEBHOOK_ALLOW_PRIVATE=true",
	"PAYMENT_WEBHOOK_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", testEntryKeys,
}

func runDocument(t *testing.T, name string, blocks []docBlock) {
	t.Helper()
	dev, api, _ := startDevWith(t, docSettings)
	banner := dev.out.String()
	admin := regexp.MustCompile(`operations (http://[0-9.:]+)\n`).FindStringSubmatch(banner)[1]
	servers := regexp.MustCompile(`export DATABASE_URL='([^']*)' REDIS_URL='([^']*)'`).FindStringSubmatch(banner)
	dir := docDirectory(t)
	addresses := strings.NewReplacer("127.0.0.1:8080", hostOf(t, api), "127.0.0.1:8081", hostOf(t, admin))
	ctx, cancel := context.WithTimeout(t.Context(), docLimit)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", addresses.Replace(docScript(blocks)))
	shell.Dir = dir
	shell.Env = append([]string{
		"PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH"), "HOME=" + dir, "CURL_HOME=" + dir,
		"DATABASE_URL=" + servers[1], "REDIS_URL=" + servers[2], "SLUICE_ACTOR=ann",
	}, docSettings...)
	var out bytes.Buffer
	shell.Stdout, shell.Stderr = &out, &out
	err := shell.Run()
	outputs := strings.Split(out.String(), blockMark)[1:]
	if err == nil && len(outputs) != len(blocks) {
		t.Errorf("%s: %d of %d blocks were run", name, len(outputs), len(blocks))
	}
	for i, block := range blocks[:min(len(blocks), len(outputs))] {
		if got := addressesBack(t, outputs[i], api, admin); block.expectsOutput && !sameOutput(block.expected, got) {
			t.Errorf("%s:%d prints:\n%s\nthe document says:\n%s", name, block.line, got, block.expected)
		}
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		last := min(max(len(outputs), 1), len(blocks))
		t.Errorf("%s:%d fails, %v:\n%s\nit prints:\n%s", name, blocks[last-1].line, err, blocks[last-1].text,
			strings.Join(outputs, "\n--\n"))
	case err != nil:
		t.Fatal(err)
	}
}

// addressesBack puts the addresses of the documents in the place of those of the test.
func addressesBack(t *testing.T, text, api, admin string) string {
	t.Helper()
	return strings.NewReplacer(hostOf(t, api), "127.0.0.1:8080", hostOf(t, admin), "127.0.0.1:8081").Replace(text)
}

func hostOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	return u.Host
}

// docDirectory is where a reader would be: bin/sluice is there, and on PATH. An HTTP error is an error to curl.
func docDirectory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	must(t, err)
	must(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	script := fmt.Sprintf("#!/bin/sh\n%s=1 exec '%s' \"$@\"\n", asProgram, self)
	must(t, os.WriteFile(filepath.Join(dir, "bin", "sluice"), []byte(script), 0o755))
	const curl = "silent\nshow-error\nfail-with-body\nmax-time = 60\n"
	must(t, os.WriteFile(filepath.Join(dir, ".curlrc"), []byte(curl), 0o600))
	return dir
}

// TestGoInDocsCompiles vets each Go file that the documents print.
func TestGoInDocsCompiles(t *testing.T) {
	t.Parallel()
	files := 0
	for name, blocks := range documents(t) {
		for _, block := range blocks {
			if block.language != "go" {
				continue
			}
			files++
			file := filepath.Join(t.TempDir(), "main.go")
			must(t, os.WriteFile(file, []byte(block.text), 0o600))
			ctx, cancel := context.WithTimeout(t.Context(), docLimit)
			out, err := exec.CommandContext(ctx, "go", "vet", file).CombinedOutput()
			cancel()
			if err != nil {
				t.Errorf("%s:%d: %v\n%s", name, block.line, err, out)
			}
		}
	}
	if files == 0 {
		t.Error("the documents print no Go")
	}
}
