// Package functions keeps the scripts on the server as Redis Functions, for users who may not send scripts: a user with
// FCALL, and without EVAL, EVALSHA and SCRIPT, can run these and no other. Functions are replicated, and survive a
// restart with the data; an empty server must be given them, by a user who may (`sluice functions load`).
package functions

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"sluice/lua"
	"sluice/lua/lock"
)

// Prefix begins the names of our libraries and functions.
const Prefix = "sluice_"

// library is all scripts of this build.
type library struct {
	name   string            // differs between builds, so that two of them can run at a time
	code   string            // for FUNCTION LOAD
	byHash map[string]string // the function of a script, by the SHA-1 that EVALSHA names it with
}

var build = sync.OnceValue(func() library {
	sources := lua.Sources()
	for name, source := range lock.Sources() {
		sources["lock_"+name] = source
	}
	all := sha256.New()
	names := slices.Sorted(maps.Keys(sources))
	for _, name := range names {
		fmt.Fprintf(all, "%s %d\n%s\n", name, len(sources[name]), sources[name])
	}
	id := hex.EncodeToString(all.Sum(nil))[:12]
	l := library{name: Prefix + id, byHash: map[string]string{}}
	var code strings.Builder
	fmt.Fprintf(&code, "#!lua name=%s\n", l.name)
	for _, name := range names {
		function := Prefix + name + "_" + id
		l.byHash[hashOf(sources[name])] = function
		fmt.Fprintf(&code, "redis.register_function{ function_name = '%s', flags = { %s }, callback = "+
			"function(KEYS, ARGV)\n%s\nend }\n", function, flagsOf(name), sources[name])
	}
	l.code = code.String()
	return l
})

// growing are the scripts that add something: a server whose memory is full refuses them before their first step, as it
// refuses the first write of a script that is sent. All others must run there, or nothing would give memory back.
var growing = []string{
	"admit", "install", "join", "lease", "load", "lock_acquire", "lock_latch", "lock_run_once", "lock_share",
	"lock_try_many",
}

func flagsOf(name string) string {
	if slices.Contains(growing, name) {
		return ""
	}
	return "'allow-oom'"
}

func hashOf(source string) string {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // the same
	return hex.EncodeToString(sum[:])
}

// Name is the library of this build.
func Name() string { return build().name }
