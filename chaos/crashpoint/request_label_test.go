package crashpoint

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // the name that Redis gives a script
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"sluice/lua"
)

// scripts maps the hash by which Redis knows a script to the script's name.
func scripts(t *testing.T) map[string]string {
	t.Helper()
	names := map[string]string{}
	for name, source := range lua.Sources() {
		names[hashOf([]byte(source))] = name
	}
	for _, file := range lockScripts(t) {
		names[hashOf(read(t, file))] = strings.TrimSuffix(filepath.Base(file), ".lua")
	}
	return names
}

func lockScripts(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../lua/lock/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts of locks: %v", err)
	}
	return files
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func hashOf(source []byte) string {
	sum := sha1.Sum(source) //nolint:gosec // see above
	return hex.EncodeToString(sum[:])
}

// redisLabel names a command. A script is named by its file; what one script is used for in several ways, and what is
// done to keys of several kinds, by that too.
func redisLabel(scripts map[string]string, request []byte) string {
	args := redisArguments(request)
	if len(args) == 0 {
		return "redis ?"
	}
	command := strings.ToLower(args[0])
	switch command {
	case "evalsha", "eval":
		return scriptLabel(scripts, command, args)
	case "xgroup", "xinfo", "client", "config", "command":
		return "redis " + command + " " + strings.ToLower(args[1])
	case "set", "pexpire", "exists", "del":
		return "redis " + command + " " + kindOfKey(args[1])
	case "xpending":
		if len(args) > 3 {
			return "redis xpending list"
		}
		return "redis xpending summary"
	default:
		return "redis " + command
	}
}

func scriptLabel(scripts map[string]string, command string, args []string) string {
	hash := args[1]
	if command == "eval" {
		hash = hashOf([]byte(args[1]))
	}
	name := scripts[hash]
	keys, _ := strconv.Atoi(args[2])
	switch name {
	case "verify":
		return "redis verify " + args[3+keys]
	case "run_once":
		return "redis run_once " + args[3][strings.LastIndexByte(args[3], ':')+1:]
	default:
		return "redis " + name
	}
}

// kindOfKey is the part of a key that follows the partition.
func kindOfKey(key string) string {
	_, rest, _ := strings.Cut(key, "}:")
	kind, _, _ := strings.Cut(rest, ":")
	return kind
}

// redisArguments reads a command as clients send it, an array of bulk strings.
func redisArguments(request []byte) []string {
	var args []string
	for len(request) > 0 {
		line, rest, found := bytes.Cut(request, []byte("\r\n"))
		if !found {
			return args
		}
		request = rest
		if line[0] != '$' {
			continue
		}
		n, err := strconv.Atoi(string(line[1:]))
		if err != nil || n < 0 || n+2 > len(request) {
			return args
		}
		args, request = append(args, string(request[:n])), request[n+2:]
	}
	return args
}

// statements are the prepared statements of a run. pgx names one after its text, the same on every connection.
type statements struct {
	mu    sync.Mutex // protects texts
	texts map[string]string
}

// label names a request by the statements that it runs. One that runs none prepares them.
func (s *statements) label(request []byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(request) > 4 && request[0] == 0 { // the greeting has no type
		return "postgres greeting"
	}
	var run []string
	executes := false
	for len(request) >= 5 {
		kind, size := request[0], int(binary.BigEndian.Uint32(request[1:5]))+1
		if size < 5 || size > len(request) {
			break
		}
		body := request[5:size]
		request = request[size:]
		switch kind {
		case 'Q':
			return "postgres " + nameOf(text(body, 0))
		case 'P':
			s.texts[text(body, 0)] = text(body, 1)
		case 'B':
			run = append(run, nameOf(s.texts[text(body, 1)]))
		case 'E':
			executes = true
		}
	}
	if !executes {
		return "postgres prepare"
	}
	return "postgres " + run[0] // of a batch, the first one counts
}

// text is the i-th of the texts that a message begins with; each ends with a zero.
func text(body []byte, i int) string {
	texts := bytes.SplitN(body, []byte{0}, i+2)
	return string(texts[min(i, len(texts)-1)])
}

// known names statements by a text that only they contain.
var known = []struct{ contains, name string }{
	{"goose_db_version", "check schema"},
	{"insert into installation", "note partitions"},
	{"from installation", "read partitions"},
	{"insert into ledger_losses", "begin a loss"},
	{"update ledger_losses", "finish a loss"},
	{"'ledger-loss', now(), true from ended", "end what was forgotten"},
	{"join_generation()", "persist"},
	{"own.partition", "explain"},
	{"from orders where number = any", "look for numbers"},
	{"group by sale_id order by sale_id", "look for overdue orders"},
	{"insert into dead_letters", "bury"},
	{"begin_generation()", "begin generation"},
	{"select number from generation", "read generation"},
	{"left join verified_partitions", "read generation"},
	{"insert into examined_server", "record the server"},
	{"from examined_server)", "look for an examination"},
	{"select server_identity()", "name the server"},
	{"from ledger_losses", "look for a loss"},
	{"and id > $3::text::uuid", "list live orders"},
	{"persisted_at >= $3", "count what came home"},
	{"select max(id::text) as last", "spare"},
	{"join waitlist w", "look for leaves"},
	{"update releases r set applied_at", "mark released"},
	{"insert into leases", "elect verifier"},
	{"delete from leases", "end election"},
	{"insert into accept_journals", "announce journals"},
	{"insert into covered_partitions", "cover partitions"},
	{"from covered_partitions", "look at covered partitions"},
	{"update audit_log set detail", "finish rebuild"},
	{"unnest(s.partitions)", "read all watermarks"},
	{"'rebuild'", "record rebuild"},
	{"set loaded_at", "mark loaded"},
	{"updated_at >= $2", "read sales"},
	{"from sales where id = $1", "read sale"},
	{"set replay_order_id", "begin replay"},
	{"with resolved as", "resolve letter"},
	{"from dead_letters where id", "read letter"},
	{"from orders where sale_id = $1 and id = $2", "read order"},
	{"by live desc", "read buyer's order"},
	{"read only", "begin reading"},
	{"set_config('statement_timeout'", "allow time"},
	{"'tcp_keepalives_idle'", "set up session"},
	{"group by status, partition", "count orders"},
	{"seq from watermarks", "read watermarks"},
	{"count(*) from releases", "count releases"},
	{"o.accepted_at from unnest", "read known orders"},
	{"o.id::text from unnest", "look for orders"},
	{"from orders where sale_id = $1 and status in", "read live orders"},
	{"where applied_at is null", "read releases"},
	{"order_id = $2 and applied_at is null", "read letter's releases"},
}

func nameOf(sql string) string {
	words := strings.Fields(sql)
	sql = strings.Join(words, " ")
	i := slices.IndexFunc(known,
		func(k struct{ contains, name string }) bool { return strings.Contains(sql, k.contains) })
	if i >= 0 {
		return known[i].name
	}
	return strings.Join(words[:min(len(words), 12)], " ")
}

// httpLabel names a request of a buyer or of an operator.
func httpLabel(request []byte) string {
	line, _, _ := bytes.Cut(request, []byte(" HTTP/"))
	path := string(line[bytes.LastIndexByte(line, '/')+1:])
	return "http " + path
}
