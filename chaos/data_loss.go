package chaos

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sluice/internal/buyers"
	"sluice/internal/localservers"
)

// What Redis loses at most, in time: from when its data is copied, or its replica stops to follow, until it dies.
const leastLag, mostLag = 300 * time.Millisecond, time.Second

const (
	rewriteLimit = 30 * time.Second // for an append-only file to be rewritten, before it is copied
	rewriteEvery = 20 * time.Millisecond
)

// currentRedis is the server that the APIs and workers use now.
func (s *system) currentRedis() *localservers.Redis {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.redis
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
			late, err := lateReplica(ctx, primary, next)
			if err != nil {
				return 0, err
			}
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

// lateReplica makes a primary of a replica that has not received what the primary did last.
func lateReplica(ctx context.Context, primary *localservers.Redis, next step) (*localservers.Redis, error) {
	late, err := primary.StartReplica(ctx)
	if err != nil {
		return nil, err
	}
	// A replica that lags is one that receives nothing any more: from here on it knows of nothing new.
	if err := late.Promote(ctx); err != nil {
		return nil, errors.Join(err, late.Close())
	}
	buyers.Sleep(ctx, between(next.Random, leastLag, mostLag))
	return late, nil
}

// split puts a late replica in the place of a Redis that lives, and that one API still takes for the primary. Every
// second time that API is also cut off from Postgres, so that nobody can tell that it lives. When it is over, the old
// primary is gone.
func (s *system) split(next step) fault {
	heal := func(context.Context) (int, error) { return 0, nil }
	alone := s.links[next.API+">postgres"]
	return fault{
		do: func(ctx context.Context) (int, error) {
			primary := s.currentRedis()
			late, err := lateReplica(ctx, primary, next)
			if err != nil {
				return 0, err
			}
			if next.Random%2 == 0 {
				alone.Freeze()
			}
			heal = func(context.Context) (int, error) {
				if next.Random%2 == 0 {
					alone.Thaw()
				}
				return 0, errors.Join(s.links[next.API+">redis"].Retarget(late.URL()), primary.Kill(),
					os.RemoveAll(filepath.Join(primary.Dir(), "appendonlydir")))
			}
			return hit(s.moveTo(late, next.API))
		},
		undo: func(ctx context.Context) (int, error) { return heal(ctx) },
	}
}

// moveTo leads every connection to another Redis, but for those of some processes.
func (s *system) moveTo(server *localservers.Redis, but ...string) error {
	s.mu.Lock()
	s.redis = server
	s.mu.Unlock()
	var errs []error
	for name, link := range s.links {
		process, isRedis := strings.CutSuffix(name, ">redis")
		if isRedis && !slices.Contains(but, process) {
			errs = append(errs, link.Retarget(server.URL()))
		}
	}
	return errors.Join(errs...)
}
