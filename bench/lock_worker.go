package main

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"sluice/internal/config"
	"sluice/internal/process"
	"sluice/lock"
)

// benchWorkerLocks measures the worker with and without its batch lock. Without: the call that takes the locks is
// answered as by a server without memory, on which the worker goes on without locks and has none to free.
func benchWorkerLocks(ctx context.Context, s *testbed) (result Result, err error) {
	h, err := newWorkload(s)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	full, err := s.fullAnswer(ctx)
	if err != nil {
		return Result{}, err
	}
	unlocked, err := process.OpenRedis(config.Config{RedisURL: s.servers.Redis.URL()})
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, unlocked.Close()) }()
	unlocked.AddHook(noLocks{full})

	plain := h.worker(1)
	without := plain
	without.name = "worker without locks"
	without.run = func(ctx context.Context) (Work, error) {
		locked := s.rdb
		s.rdb = unlocked
		defer func() { s.rdb = locked }()
		return plain.run(ctx)
	}
	c := comparison{
		name: "locks-worker", title: "The worker's batch lock", unit: "rows",
		candidates: []candidate{plain, without},
		pairs:      []pair{{"worker / worker without locks", 0, 1}},
	}
	result, err = c.run(ctx, s)
	if err == nil {
		result.reach("cost of the batch lock, by rate", 1-result.Ratios[0].Median, 0.15, false)
		result.reach("cost of the batch lock, by CPU time", 1-result.Ratios[0].CPU.Median, 0.15, false)
	}
	return result, err
}

// fullAnswer is what a server without memory says to who wants locks.
func (s *testbed) fullAnswer(ctx context.Context) (answer, err error) {
	if err := s.control.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		return nil, err
	}
	_, full := lock.New(s.control).TryLockMany(ctx, []string{"a"})
	if err := s.control.ConfigSet(ctx, "maxmemory", "0").Err(); err != nil {
		return nil, err
	}
	if !redis.IsOOMError(full) {
		return nil, errors.Join(errors.New("a full server gave a lock"), full)
	}
	return full, nil
}

// noLocks answers the script that takes a batch of locks in the server's place. It is known by its first key: a
// worker's other scripts begin with another.
type noLocks struct{ full error }

func (n noLocks) DialHook(next redis.DialHook) redis.DialHook { return next }

func (n noLocks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (n noLocks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" && isOrderLock(cmd.Args()) {
			cmd.SetErr(n.full)
			return n.full
		}
		return next(ctx, cmd)
	}
}

func isOrderLock(args []any) bool {
	if len(args) < 4 {
		return false
	}
	key, _ := args[3].(string)
	return strings.Contains(key, ":lock:order:")
}
