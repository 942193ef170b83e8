package redisstore

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// Features are what a Redis server can do and how it is configured. They are probed, not guessed from its version.
type Features struct {
	Version     string
	RunID       string // of the server process
	Policy      string // maxmemory-policy; "" where CONFIG is forbidden
	AppendOnly  bool
	AppendFsync string // always, everysec, no; "" where CONFIG is forbidden
	RestsFsync  bool   // no-appendfsync-on-rewrite: it does not fsync while it rewrites the file
	WaitAOF     bool   // it has the command WAITAOF
	Replicas    int    // connected
}

// Durability is the strongest level that the server's reply alone confirms, by its settings.
func (f Features) Durability() pipeline.Durability {
	if f.AppendOnly && f.AppendFsync == "always" && !f.RestsFsync {
		return pipeline.DurabilityFsync
	}
	return pipeline.DurabilityMemory
}

// WaitsForDisk reports whether the server can be asked, batch by batch, to confirm that its disk has what was written.
// With appendfsync no it never would: the operating system decides.
func (f Features) WaitsForDisk() bool { return f.WaitAOF && f.AppendOnly && f.AppendFsync != "no" }

// Require returns a KindInvalid error, which says what to do, when the server can't be trusted with orders: one that
// may evict loses stock and buyers, one whose disk confirms nothing loses accepts. A missing replica is no reason to
// refuse: it may come and go while the process runs, and each receipt states its own level.
func (f Features) Require(want pipeline.Durability) error {
	if f.evicts() {
		return pipeline.Errorf(pipeline.KindInvalid, "Redis may evict orders: maxmemory-policy is %s; set it to noeviction",
			f.Policy)
	}
	if want != pipeline.DurabilityMemory && f.Durability() != pipeline.DurabilityFsync && !f.WaitsForDisk() {
		return pipeline.Errorf(pipeline.KindInvalid, "DURABILITY=%s, but Redis runs with appendonly %s, appendfsync %s and "+
			"no-appendfsync-on-rewrite %s; set appendonly yes, appendfsync always and no-appendfsync-on-rewrite no, "+
			"or DURABILITY=memory",
			want, yesNo(f.AppendOnly), orUnknown(f.AppendFsync), yesNo(f.RestsFsync))
	}
	return nil
}

// Probe asks a server for its features. Of a cluster it asks every master and returns the features of the one that
// promises least, since each has some of the partitions. Where CONFIG is forbidden, as it is at some hosts, the
// features are those that INFO reports. Errors: KindUnavailable.
func Probe(ctx context.Context, rdb redis.UniversalClient) (f Features, err error) {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		f, err = examineMasters(ctx, cluster)
	} else {
		f, err = Examine(ctx, rdb)
	}
	if err != nil {
		return Features{}, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis does not answer")
	}
	return f, nil
}

func examineMasters(ctx context.Context, cluster *redis.ClusterClient) (Features, error) {
	var mu sync.Mutex // protects found: the masters are asked concurrently
	var found []Features
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		f, err := Examine(ctx, master)
		mu.Lock()
		defer mu.Unlock()
		found = append(found, f)
		return err
	})
	if err != nil {
		return Features{}, err
	}
	if len(found) == 0 {
		return Features{}, errNoMasters
	}
	return slices.MinFunc(found, func(a, b Features) int { return a.promise() - b.promise() }), nil
}

// errNoMasters is transient, as every answer of a cluster that is being formed.
var errNoMasters = errors.New("the cluster has no masters yet")

// promise ranks servers by what Require and the receipts depend on, from 0, the weakest.
func (f Features) promise() int {
	switch {
	case f.evicts():
		return 0
	case f.Durability() != pipeline.DurabilityFsync && !f.WaitsForDisk():
		return 1
	case f.Durability() != pipeline.DurabilityFsync:
		return 2
	case f.Replicas == 0:
		return 3
	default:
		return 4
	}
}

func (f Features) evicts() bool { return f.Policy != "" && f.Policy != "noeviction" }

// errLoading is transient. A server that is reading its file answers INFO and CONFIG, but reports that it has no file
// at all (aof_enabled:0). Receipts would state a wrong level for as long as such an answer is cached.
var errLoading = errors.New("Redis is still reading its data, and does not report its settings yet")

// Examine is Probe on one connection, in one round trip; its error is the client's own, or errLoading.
func Examine(ctx context.Context, rdb interface{ Pipeline() redis.Pipeliner }) (Features, error) {
	pipe := rdb.Pipeline()
	server, memory, persistence := pipe.Info(ctx, "server"), pipe.Info(ctx, "memory"), pipe.Info(ctx, "persistence")
	replication := pipe.Info(ctx, "replication")
	fsync, rests := pipe.ConfigGet(ctx, "appendfsync"), pipe.ConfigGet(ctx, "no-appendfsync-on-rewrite")
	waitAOF := pipe.Do(ctx, "COMMAND", "INFO", "WAITAOF") // a list of one: nil where there is no such command
	if _, err := retry.Exec(ctx, pipe); err != nil {
		return Features{}, err
	}
	if err := errors.Join(server.Err(), memory.Err(), persistence.Err(), replication.Err()); err != nil {
		return Features{}, err
	}
	// Refused, an optional answer is unknown; lost, it is worth another attempt.
	for _, optional := range []error{fsync.Err(), rests.Err(), waitAOF.Err()} {
		if optional != nil && retry.IsTransient(optional) {
			return Features{}, optional
		}
	}
	if infoField(persistence.Val(), "loading") == "1" {
		return Features{}, errLoading
	}
	commands, _ := waitAOF.Slice()
	replicas, _ := strconv.Atoi(infoField(replication.Val(), "connected_slaves"))
	return Features{
		Version: infoField(server.Val(), "redis_version"), RunID: infoField(server.Val(), "run_id"),
		Policy:      infoField(memory.Val(), "maxmemory_policy"),
		AppendOnly:  infoField(persistence.Val(), "aof_enabled") == "1",
		AppendFsync: fsync.Val()["appendfsync"],
		RestsFsync:  rests.Val()["no-appendfsync-on-rewrite"] == "yes",
		WaitAOF:     len(commands) == 1 && commands[0] != nil,
		Replicas:    replicas,
	}, nil
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
