// Package acl says what each program needs of Redis, as users of Redis' access control lists (ACL).
package acl

import (
	"slices"
	"strings"

	"sluice/pipeline"
)

// Role is what a user of Redis is for.
type Role string

// The roles.
const (
	API      Role = "api"
	Worker   Role = "worker"
	Operator Role = "operator" // the command line
)

// Roles are all of them.
var Roles = []Role{API, Worker, Operator}

var (
	// everybody needs these for a connection, to know which server answers, and to find the nodes of a cluster.
	everybody = []string{"asking", "cluster|slots", "command", "config|get", "hello", "info", "ping", "select", "time"}
	// verifying is what a program needs that takes part in the verification of a server, and in a rebuild of its sales:
	// the programs do, because a buyer can't wait for an operator.
	verifying = []string{
		"exec", "exists", "get", "hdel", "hget", "hgetall", "hkeys", "hlen", "hmget", "hscan", "hset", "incrby", "mget", "multi",
		"persist", "pexpire", "publish", "pttl", "rename", "sadd", "set", "smembers", "unlink", "xadd", "xgroup|create",
		"xlen", "xrange", "xrevrange", "zadd",
		"zcard", "zrange", "zrank", "zrem", "zscore",
	}
	// ours are the commands of each role besides.
	ours = map[Role][]string{
		// What waits in the streams, and with whom, is shown in the console.
		API: {"subscribe", "unsubscribe", "wait", "xinfo|consumers", "xinfo|groups", "xpending"},
		Worker: {
			"del", "srem", "subscribe", "unsubscribe", "xack", "xautoclaim", "xclaim", "xdel", "xgroup|createconsumer",
			"xgroup|delconsumer", "xinfo|consumers", "xinfo|groups", "xpending", "xreadgroup",
		},
		Operator: { // the first two are the doctor's, who looks for rights that are not needed
			"acl|dryrun", "client|list", "del", "function|list", "scan", "xack", "xautoclaim", "xclaim", "xdel",
			"xinfo|consumers", "xinfo|groups", "xpending", "xreadgroup",
		},
	}
	// newer are commands that Redis has from 7.2 on, and Valkey. A server refuses an ACL with a command it does not know.
	newer = map[Role][]string{
		API: {"client|setinfo", "waitaof"}, Worker: {"client|setinfo"}, Operator: {"client|setinfo"},
	}
)

// Commands returns what a role may use, sorted. With asFunctions it may send no scripts, and calls those that were
// loaded.
func Commands(role Role, asFunctions bool) []string {
	all := slices.Concat(everybody, verifying, ours[role])
	if asFunctions {
		all = append(all, "fcall")
	} else {
		all = append(all, "eval", "evalsha")
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// patterns are the keys and channels of a role. Locks wake their waiters on channels of their own.
func patterns(role Role) []string {
	prefix := pipeline.DefaultKeys.Prefix
	all := []string{"~" + prefix + ":{p??}:*", "~" + prefix + ":{seq}:*", "&" + prefix + ":{p??}:*", "&lock:*"}
	switch role {
	case API:
	case Worker:
		all = append(all, "~"+prefix+":{jobs}:*")
	case Operator: // the doctor tries commands on a key of its own
		all = append(all, "~"+prefix+":{doctor}:*")
	}
	return all
}

// Line is the command that gives a user the rights of a role and no others, also not by selectors that it had, and
// leaves its passwords alone. With withNewer it names commands that only newer servers know.
func Line(role Role, user string, asFunctions, withNewer bool) string {
	words := []string{"ACL SETUSER", user, "on", "resetkeys", "resetchannels", "clearselectors", "-@all"}
	words = append(words, patterns(role)...)
	commands := Commands(role, asFunctions)
	if withNewer {
		commands = append(commands, newer[role]...)
	}
	for _, command := range commands {
		words = append(words, "+"+command)
	}
	return strings.Join(words, " ")
}
