package pipeline

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Features are what a Redis server can do and how it is set. They are probed, not guessed from its version.
type Features struct {
	Version     string
	RunID       string // of the server process
	Policy      string // maxmemory-policy; "" where CONFIG is forbidden
	AppendOnly  bool
	AppendFsync string // always, everysec, no; "" where CONFIG is forbidden
}

// Durability is the strongest level that the server's settings confirm for every accept.
func (f Features) Durability() Durability {
	if f.AppendOnly && f.AppendFsync == "always" {
		return DurabilityFsync
	}
	return DurabilityMemory
}

// Require returns a KindInvalid error, which says what to do, when the server can't be trusted with orders: one that may
// evict loses stock and buyers, one that is less durable than wanted loses accepts.
func (f Features) Require(want Durability) error {
	if f.Policy != "" && f.Policy != "noeviction" {
		return Errorf(KindInvalid, "Redis may evict orders: maxmemory-policy is %s; set it to noeviction", f.Policy)
	}
	if want == DurabilityFsync && f.Durability() != DurabilityFsync {
		return Errorf(KindInvalid, "DURABILITY=fsync, but Redis runs with appendonly %s and appendfsync %s; set appendonly yes and appendfsync always, or DURABILITY=memory",
			yesNo(f.AppendOnly), orUnknown(f.AppendFsync))
	}
	return nil
}

// Probe asks a server for its features. Where CONFIG is forbidden, as some hosts do, INFO tells what it can.
func Probe(ctx context.Context, rdb redis.UniversalClient) (Features, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	server, err := rdb.Info(ctx, "server").Result()
	if err != nil {
		return Features{}, Wrap(KindUnavailable, err, "Redis does not answer")
	}
	memory, err := rdb.Info(ctx, "memory").Result()
	if err != nil {
		return Features{}, Wrap(KindUnavailable, err, "Redis does not answer")
	}
	persistence, err := rdb.Info(ctx, "persistence").Result()
	if err != nil {
		return Features{}, Wrap(KindUnavailable, err, "Redis does not answer")
	}
	f := Features{
		Version: infoField(server, "redis_version"), RunID: infoField(server, "run_id"),
		Policy:     infoField(memory, "maxmemory_policy"),
		AppendOnly: infoField(persistence, "aof_enabled") == "1",
	}
	if set, err := rdb.ConfigGet(ctx, "appendfsync").Result(); err == nil {
		f.AppendFsync = set["appendfsync"]
	}
	return f, nil
}

// infoField finds "name:value" in the text of INFO.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func orUnknown(s string) string {
	if s == "" {
		return "(unknown: CONFIG is forbidden)"
	}
	return s
}
