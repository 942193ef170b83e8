package acl_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sluice/internal/acl"
	"sluice/lua"
	"sluice/lua/lock"
)

var called = regexp.MustCompile(`(?:call\(|\{ )'([A-Z]+)'(?:, '(CREATE|CREATECONSUMER|DELCONSUMER|CONSUMERS|GROUPS)')?`)

// unused are scripts of kinds of locks that the programs have no use for.
var unused = []string{"lock acquire", "lock latch", "lock release", "lock share", "lock unshare"}

// inScripts are the commands that scripts call, as ACLs name them.
func inScripts() []string {
	var all []string
	for room, sources := range map[string]map[string]string{"": lua.Sources(), "lock ": lock.Sources()} {
		for name, source := range sources {
			if slices.Contains(unused, room+name) {
				continue
			}
			all = append(all, commandsOf(source)...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// runs are the scripts of each role, besides those that take part in a verification and a rebuild, which all do.
var (
	everyoneRuns = []string{"install", "lease", "load", "passed", "refusal", "verify"}
	runs         = map[acl.Role][]string{
		acl.API: {"adjust", "admit", "give", "group", "join", "leave", "release", "take"},
		acl.Worker: {
			"adjust", "claim", "give", "handover", "join", "leave", "reap", "release", "retire", "settle", "take",
			"lock renew", "lock run_once", "lock try_many", "lock unlock_many",
		},
		acl.Operator: {"adjust", "admit", "claim", "group", "join", "leave", "release", "settle"},
	}
)

// TestEachRoleMayRunItsScripts: no script of a role calls what the role may not.
func TestEachRoleMayRunItsScripts(t *testing.T) {
	t.Parallel()
	for _, role := range acl.Roles {
		given := acl.Commands(role, false)
		for _, name := range slices.Concat(everyoneRuns, runs[role]) {
			for _, command := range commandsOf(sourceOf(name)) {
				if !slices.Contains(given, command) {
					t.Errorf("%s runs %s, which calls %s, and may not", role, name, command)
				}
			}
		}
	}
}

// sourceOf is a script, or the part of one that others include.
func sourceOf(name string) string {
	if of, isLock := strings.CutPrefix(name, "lock "); isLock {
		return lock.Sources()[of]
	}
	return lua.Sources()[name]
}

func commandsOf(source string) (all []string) {
	for _, match := range called.FindAllStringSubmatch(source, -1) {
		command := strings.ToLower(match[1])
		if match[2] != "" {
			command += "|" + strings.ToLower(match[2])
		}
		all = append(all, command)
	}
	return all
}

// everyone is what any role may use.
func everyone() (all []string) {
	for _, role := range acl.Roles {
		all = append(all, acl.Commands(role, false)...)
	}
	return all
}

// TestScriptsMayCallWhatTheyCall: a command that is new in a script is given to somebody.
func TestScriptsMayCallWhatTheyCall(t *testing.T) {
	t.Parallel()
	commands := inScripts()
	if len(commands) < 30 {
		t.Fatalf("found only %q", commands)
	}
	given := everyone()
	for _, command := range commands {
		if !slices.Contains(given, command) {
			t.Errorf("scripts call %s, and no user may", command)
		}
	}
}

// TestNothingIsGivenInVain: each command is in a script, or is sent by a program.
func TestNothingIsGivenInVain(t *testing.T) {
	t.Parallel()
	// What the client sends by itself.
	connection := []string{
		"asking", "cluster|slots", "command", "eval", "evalsha", "exec", "hello", "multi", "select", "unsubscribe",
	}
	inLua, sources := inScripts(), programs(t)
	for _, command := range slices.Compact(slices.Sorted(slices.Values(everyone()))) {
		name := strings.ReplaceAll(command, "|", "")
		sent := regexp.MustCompile(`(?i)(\.|")` + name + `(\(|mkstream\(|n\(|ext\(|withdeleted\(|")`)
		if !slices.Contains(connection, command) && !slices.Contains(inLua, command) && !sent.MatchString(sources) {
			t.Errorf("%s is given, and nothing uses it", command)
		}
	}
}

// programs is the source of everything that talks to Redis in production.
func programs(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, room := range []string{"pipeline", "lock", "lua", "internal/process", "cmd/sluice"} {
		err := filepath.WalkDir(filepath.Join("..", "..", room), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "pipelinetest") ||
				strings.Contains(path, "/demo/") {
				return err
			}
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// TestRolesDiffer: an api reads no stream of a group and takes no job, a worker and an operator send no more than they
// need, and nobody gets a category.
func TestRolesDiffer(t *testing.T) {
	t.Parallel()
	for _, role := range acl.Roles {
		for _, asFunctions := range []bool{false, true} {
			line := acl.Line(role, "u", asFunctions, false)
			if strings.Contains(line, "+@") || strings.Contains(line, "~*") || strings.Contains(line, "&*") ||
				!strings.HasPrefix(line, "ACL SETUSER u on resetkeys resetchannels clearselectors -@all ") {
				t.Errorf("%s: %s", role, line)
			}
			if strings.Contains(line, "+eval") == asFunctions || strings.Contains(line, "+fcall") != asFunctions {
				t.Errorf("%s, functions %t: %s", role, asFunctions, line)
			}
			if role == acl.API && (strings.Contains(line, "xreadgroup") || strings.Contains(line, "{jobs}")) {
				t.Errorf("an api: %s", line)
			}
		}
	}
}
