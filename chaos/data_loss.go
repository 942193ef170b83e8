package chaos

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sluice/internal/buyers"
	"sluice/internal/localservers"
	"sluice/pipeline"
)

// What Redis loses at most, in time: from when its data is copied, or its replica stops to follow, until it dies.
const leastLag, mostLag = 300 * time.Millisecond, time.Second

const (
	// rememberLimit bounds the wait before a loss of Redis' data.
	rememberLimit = time.Minute
	rewriteLimit  = 30 * time.Second // for an append-only file to be rewritten, before it is copied
	rewriteEvery  = 20 * time.Millisecond
)

// currentRedis is the server that the APIs and workers use now.
func (s *system) currentRedis() *localservers.Redis {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.redis
}

// awaitRemembered waits until everything in the streams was accepted after the last death of an API. What an API
// accepted that is dead by now, and no worker has persisted, nobody could bring back: that would be no fault of the
// pipeline.
func (r *run) awaitRemembered(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, rememberLimit)
	defer cancel()
	for ctx.Err() == nil && !r.remembered(ctx) {
		buyers.Sleep(ctx, settleEvery)
	}
}

func (r *run) remembered(ctx context.Context) bool {
	var lastDeath time.Time
	for _, p := range r.system.processes {
		if p.front == nil {
			continue
		}
		if _, err := p.running(ctx); err != nil {
			return false
		}
		if died := p.lastDeath(); died.After(lastDeath) {
			lastDeath = died
		}
	}
	for p := range pipeline.Partition(partitions) {
		oldest, err := r.system.rdb.XRangeN(ctx, pipeline.DefaultKeys.Orders(p), "-", "+", 1).Result()
		if err != nil {
			return false
		}
		for _, entry := range oldest {
			ms, _, _ := strings.Cut(entry.ID, "-")
			n, err := strconv.ParseInt(ms, 10, 64)
			if err != nil || time.UnixMilli(n).Before(lastDeath) {
				return false
			}
		}
	}
	return true
}

// flushAll empties Redis while it runs.
func (s *system) flushAll(ctx context.Context) (int, error) { return hit(s.rdb.FlushAll(ctx).Err()) }

// restoreOldFile has Redis come back from a power cut with files of a moment before: a snapshot of a disk that was
// restored, or a disk that lied about what it had written.
func (s *system) restoreOldFile(next step) fault {
	return fault{
		do: func(ctx context.Context) (int, error) {
			server := s.currentRedis()
			saved, err := s.copyFiles(ctx, server)
			if err != nil {
				return 0, err
			}
			buyers.Sleep(ctx, between(next.Random, leastLag, mostLag))
			if err := server.Kill(); err != nil {
				return 0, err
			}
			return 1, server.RestoreData(saved)
		},
		undo: func(ctx context.Context) (int, error) { return 0, s.currentRedis().Restart(ctx) },
	}
}

// copyFiles copies the append-only files of a running server, in a moment in which it is not replacing them.
func (s *system) copyFiles(ctx context.Context, server *localservers.Redis) (localservers.Saved, error) {
	ctx, cancel := context.WithTimeout(ctx, rewriteLimit)
	defer cancel()
	if err := s.rdb.ConfigSet(ctx, "auto-aof-rewrite-percentage", "0").Err(); err != nil {
		return localservers.Saved{}, err
	}
	defer func() { _ = s.rdb.ConfigSet(ctx, "auto-aof-rewrite-percentage", "100").Err() }() // a restart does the same
	for {
		info, err := s.rdb.Info(ctx, "persistence").Result()
		if err != nil {
			return localservers.Saved{}, err
		}
		if strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0") {
			return server.SaveData()
		}
		buyers.Sleep(ctx, rewriteEvery)
	}
}

// failOver kills Redis and puts a replica in its place that had stopped to follow a moment before.
func (s *system) failOver(next step) fault {
	var replica *localservers.Redis // once it is to take over
	return fault{
		do: func(ctx context.Context) (int, error) {
			primary := s.currentRedis()
			late, err := primary.StartReplica(ctx)
			if err != nil {
				return 0, err
			}
			// A replica that lags is one that receives nothing any more: from here on it knows of nothing new.
			if err := late.Promote(ctx); err != nil {
				return 0, errors.Join(err, late.Close())
			}
			buyers.Sleep(ctx, between(next.Random, leastLag, mostLag))
			if err := primary.Kill(); err != nil {
				return 0, err
			}
			replica = late
			return 1, os.RemoveAll(filepath.Join(primary.Dir(), "appendonlydir")) // it never comes back
		},
		undo: func(context.Context) (int, error) {
			if replica == nil {
				return 0, nil
			}
			return 0, s.moveTo(replica)
		},
	}
}

// moveTo leads every connection to another Redis.
func (s *system) moveTo(server *localservers.Redis) error {
	s.mu.Lock()
	s.redis = server
	s.mu.Unlock()
	var errs []error
	for name, link := range s.links {
		if strings.HasSuffix(name, ">redis") {
			errs = append(errs, link.Retarget(server.URL()))
		}
	}
	return errors.Join(errs...)
}
