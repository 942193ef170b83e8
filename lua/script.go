package lua

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	sources = map[string]string{} // by name

	commandWord = regexp.MustCompile(`(?:call\(|\{ )'([A-Z]+)'(?:, '(DELCONSUMER|GROUPS)')?`)
	writes      = []string{
		"DEL", "HDEL", "HSET", "INCRBY", "PERSIST", "RENAME", "SET", "UNLINK", "XACK", "XADD", "XCLAIM", "XDEL", "XGROUP",
		"ZADD", "ZREM",
	}
)

// newScript makes a script of a source. It runs only for a user who may use every command from the first write on.
//
// Redis looks at the rights of each command when the script comes to it, and undoes nothing: a user who lost the right
// to HSET would leave an event without the stock it took. A key without a right needs no such care, since Redis refuses
// the whole call.
//
// It is one line in front, so that errors name the right lines but for the first.
func newScript(name, source string) *redis.Script {
	source = guardOf(source) + source
	sources[name] = source
	return redis.NewScript(source)
}

// Sources are all scripts as they run, by their names: those of their files, without the ending. They are for those who
// load them beforehand, or watch what a server is asked.
func Sources() map[string]string { return maps.Clone(sources) }

func guardOf(source string) string {
	commands := guarded(source)
	if len(commands) == 0 {
		return ""
	}
	return `for _, c in ipairs({ ` + strings.Join(commands, ", ") + ` }) do ` +
		`if redis.acl_check_cmd and not redis.acl_check_cmd(c[1], c[2] or KEYS[1], KEYS[1]) then ` +
		`return redis.error_reply('NOPERM the user may not use ' .. c[1] .. '; nothing was changed') end end `
}

// guarded are the commands from the first write on, as tables of Lua: a command, and its subcommand if there is one.
func guarded(source string) []string {
	var commands []string
	for _, line := range strings.Split(source, "\n") {
		if strings.HasPrefix(line, "--") {
			continue
		}
		for _, m := range commandWord.FindAllStringSubmatch(line, -1) {
			if len(commands) == 0 && !slices.Contains(writes, m[1]) {
				continue
			}
			command := "{ '" + m[1] + "' }"
			if m[2] != "" {
				command = "{ '" + m[1] + "', '" + m[2] + "' }"
			}
			if !slices.Contains(commands, command) {
				commands = append(commands, command)
			}
		}
	}
	return commands
}
