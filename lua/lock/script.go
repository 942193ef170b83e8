package lock

import (
	"maps"

	"github.com/redis/go-redis/v9"
)

var sources = map[string]string{} // by name

func newScript(name, source string) *redis.Script {
	sources[name] = source
	return redis.NewScript(source)
}

// Sources are what every script runs, by name.
func Sources() map[string]string { return maps.Clone(sources) }
