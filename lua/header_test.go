package lua_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	lock "sluice/lua/lock"
)

// header is what the comment at the top of a script promises.
type header struct {
	keys, args           []string // names, in order; those of a repeated group after the fixed ones
	fixedKeys, fixedArgs int
	codes                []string // sorted
	raises               []string // sorted
	name, comment, body  string
}

var (
	sections   = []string{"Why atomic: ", "KEYS[", "ARGV[", "Returns ", "Cost: "}
	declared   = regexp.MustCompile(`^(KEYS|ARGV)\[(\+?)(\d+)\] (\w+)\s+\S`)
	codeLine   = regexp.MustCompile(`^  ([a-z][a-z-]*)  +\S`)
	wholeKeys  = regexp.MustCompile(`\b(?:ipairs|unpack)\(KEYS\b`)
	raisesWord = regexp.MustCompile(`\b[A-Z]{3,}\b`)
	bodyCode   = regexp.MustCompile(`(?:\breturn|[^=~<>]=) '([a-z][a-z-]*)'`)
	bodyRaise  = regexp.MustCompile(`error_reply\('([A-Z]+) (\w+): `)
)

// scriptCalls are all scripts, each with a call that sends a batch of n.
func scriptCalls(s *scripter) map[string]func(n int) error {
	ctx := context.Background()
	calls := callsOf(s)
	calls["lock/try_many.lua"] = func(n int) error {
		_, err := lock.TryMany(ctx, s, make([]string, n), "token", time.Second, false)
		return err
	}
	calls["lock/unlock_many.lua"] = func(n int) error {
		_, err := lock.UnlockMany(ctx, s, make([]string, n), "token")
		return err
	}
	calls["lock/run_once.lua"] = func(int) error {
		_, err := lock.RunOnce(ctx, s, "job", "token", time.Second, time.Millisecond)
		return err
	}
	addSynchronizers(calls, s)
	return calls
}

func addSynchronizers(calls map[string]func(n int) error, s *scripter) {
	ctx := context.Background()
	who, keys := lock.Caller{Owner: "owner", Hold: "hold", Channel: "channel"}, lock.Keys{Lock: "lock", Queue: "queue"}
	shares, share := lock.ShareKeys{Shares: "shares", Queue: "queue", Fence: "fence"}, lock.Share{
		Kind:   lock.Writer,
		Amount: 1,
	}
	calls["lock/acquire.lua"] = func(int) error {
		_, err := lock.Acquire(ctx, s, keys, who, time.Second, true)
		return err
	}
	calls["lock/release.lua"] = func(int) error { _, err := lock.Release(ctx, s, keys, who); return err }
	calls["lock/renew.lua"] = func(n int) error {
		_, err := lock.Renew(ctx, s,
			slices.Repeat([]lock.Renewal{{Key: "key", Owner: "owner", Hold: "hold", TTL: time.Second}}, n))
		return err
	}
	calls["lock/share.lua"] = func(int) error {
		_, err := lock.AcquireShare(ctx, s, shares, who, share, time.Second)
		return err
	}
	calls["lock/unshare.lua"] = func(int) error { _, err := lock.ReleaseShare(ctx, s, shares, who, share); return err }
	calls["lock/latch.lua"] = func(int) error {
		_, err := lock.Latch(ctx, s, keys, lock.LatchSpec{Count: 2, Life: time.Second},
			lock.LatchCall{Party: "party", Who: who})
		return err
	}
}

func scriptFiles(t *testing.T) []string {
	t.Helper()
	here, _ := filepath.Glob("*.lua")
	below, _ := filepath.Glob("*/*.lua")
	here = slices.DeleteFunc(here, func(file string) bool {
		return slices.Contains([]string{"handover.lua", "group.lua", "moves.lua"}, file) // no scripts: the heads of some
	})
	files := append(here, below...)
	if len(files) < 9 {
		t.Fatalf("found only %v", files)
	}
	return files
}

// A header that drifts from its script is worse than none: both sides, and the Go call, are held against it.
func TestHeadersMatchScriptsAndCalls(t *testing.T) {
	t.Parallel()
	for _, file := range scriptFiles(t) {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			h := readHeader(t, file)
			h.checkSections(t)
			h.checkBody(t)
			h.checkCall(t, file)
			h.checkGoCodes(t, file)
		})
	}
}

func readHeader(t *testing.T, file string) header {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	h := header{name: strings.TrimSuffix(filepath.Base(file), ".lua")}
	lines := strings.Split(string(source), "\n")
	end := slices.IndexFunc(lines, func(line string) bool { return !strings.HasPrefix(line, "--") })
	for i, line := range lines[:end] {
		lines[i] = strings.TrimPrefix(strings.TrimPrefix(line, "--"), " ")
	}
	h.comment, h.body = strings.Join(lines[:end], "\n"), strings.Join(lines[end:], "\n")
	for _, line := range lines[:end] {
		h.readLine(t, line)
	}
	slices.Sort(h.codes)
	slices.Sort(h.raises)
	return h
}

func (h *header) readLine(t *testing.T, line string) {
	t.Helper()
	if m := declared.FindStringSubmatch(line); m != nil {
		names, fixed := &h.keys, &h.fixedKeys
		if m[1] == "ARGV" {
			names, fixed = &h.args, &h.fixedArgs
		}
		if m[2] == "" {
			*fixed++
			if m[3] != strconv.Itoa(*fixed) {
				t.Errorf("header: %q is out of order", line)
			}
		}
		*names = append(*names, m[4])
	}
	if m := codeLine.FindStringSubmatch(line); m != nil {
		h.codes = append(h.codes, m[1])
	}
	if text, ok := strings.CutPrefix(line, "Raises "); ok {
		for _, word := range raisesWord.FindAllString(text, -1) {
			if word != "OOM" { // Redis' own
				h.raises = append(h.raises, word)
			}
		}
	}
}

func (h *header) checkSections(t *testing.T) {
	if !strings.HasPrefix(h.comment, h.name+": ") {
		t.Errorf("header begins %.30q, want the script's name", h.comment)
	}
	at := 0
	for _, section := range sections {
		next := strings.Index(h.comment[at:], "\n"+section)
		if next < 0 {
			t.Errorf("header: no section %q after the one before", section)
			continue
		}
		at += next + 1
	}
}

func (h *header) checkBody(t *testing.T) {
	for _, kind := range []struct {
		table string
		fixed int
	}{{"KEYS", h.fixedKeys}, {"ARGV", h.fixedArgs}} {
		most := 0
		for _, m := range regexp.MustCompile(kind.table+`\[(\d+)`).FindAllStringSubmatch(h.body, -1) {
			n, _ := strconv.Atoi(m[1])
			most = max(most, n)
		}
		if most > kind.fixed {
			t.Errorf("body uses %s[%d], the header declares %d", kind.table, most, kind.fixed)
		}
	}
	for i, name := range slices.Concat(h.keys, h.args) {
		if i >= h.fixedKeys && i < len(h.keys) && wholeKeys.MatchString(h.body) {
			continue // repeated keys are taken as one list
		}
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(h.body) {
			t.Errorf("body never says %q, which the header declares", name)
		}
	}
	h.checkBoundNames(t)
	codes, raises := map[string]bool{}, map[string]bool{}
	for _, m := range bodyCode.FindAllStringSubmatch(h.body, -1) {
		codes[m[1]] = true
	}
	for _, m := range bodyRaise.FindAllStringSubmatch(h.body, -1) {
		raises[m[1]] = true
		if m[2] != h.name {
			t.Errorf("an error of the body speaks of %q", m[2])
		}
	}
	same(t, "codes: body against header", slices.Sorted(maps.Keys(codes)), h.codes)
	same(t, "errors: body against header", slices.Sorted(maps.Keys(raises)), h.raises)
}

// checkBoundNames holds the order of names against the header where a statement binds several arguments at once: "local
// a, b = KEYS[1], KEYS[2]", "… = unpack(ARGV)" for the fixed ones, "… = unpack(ARGV, at, …)" for a repeated group.
func (h *header) checkBoundNames(t *testing.T) {
	bind := regexp.MustCompile(`(?m)^ *local ([\w, ]+) = (KEYS\[1\]|ARGV\[1\]|unpack\(ARGV\)|unpack\(ARGV, at)`)
	for _, m := range bind.FindAllStringSubmatch(h.body, -1) {
		want := h.args
		switch {
		case strings.HasPrefix(m[2], "KEYS"):
			want = h.keys
		case strings.HasSuffix(m[2], "at"):
			want = h.args[h.fixedArgs:]
		}
		for i, name := range strings.Split(m[1], ", ") {
			if i < len(want) && name != "_" && name != want[i] {
				t.Errorf("body calls an argument %q where the header says %q", name, want[i])
			}
		}
	}
}

// checkCall sends batches of one and three through the Go call and counts what arrives.
func (h *header) checkCall(t *testing.T, file string) {
	var s scripter
	call := scriptCalls(&s)[file]
	if call == nil {
		t.Fatal("no Go call is known for this script")
	}
	for _, n := range []int{1, 3} {
		_ = call(n) // the reply is nil, which none of them takes
		if want := h.fixedKeys + n*(len(h.keys)-h.fixedKeys); len(s.keys) != want {
			t.Errorf("batch of %d: the call sends %d keys, the header declares %d", n, len(s.keys), want)
		}
		if want := h.fixedArgs + n*(len(h.args)-h.fixedArgs); len(s.args) != want {
			t.Errorf("batch of %d: the call sends %d arguments, the header declares %d", n, len(s.args), want)
		}
	}
}

// checkGoCodes compares the string constants beside the Go call with the header, and sees that the call's switch takes
// each of them.
func (h *header) checkGoCodes(t *testing.T, file string) {
	parsed, err := parser.ParseFile(token.NewFileSet(), strings.TrimSuffix(file, ".lua")+".go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	codes, cases := map[string]string{}, map[string]bool{} // code -> constant's name; names used outside their declaration
	for _, decl := range parsed.Decls {
		if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.CONST {
			for _, spec := range d.Specs {
				v := spec.(*ast.ValueSpec)
				if text, ok := v.Values[0].(*ast.BasicLit); ok && text.Kind == token.STRING {
					code, _ := strconv.Unquote(text.Value)
					codes[code] = v.Names[0].Name
				}
			}
			continue
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				cases[id.Name] = true
			}
			return true
		})
	}
	same(t, "codes: Go against header", slices.Sorted(maps.Keys(codes)), h.codes)
	for code, name := range codes {
		if !cases[name] {
			t.Errorf("the Go call never handles %s (%q)", name, code)
		}
	}
}
