package chaos

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sluice/internal/localservers"
	"sluice/pipeline"
)

// What Redis loses at most, in time: from when its data is copied, or its replica stops to follow, until it dies.
const leastLag, mostLag = 300 * time.Millisecond, time.Second

const (
	// witnessLimit bounds the wait before a loss of Redis' data.
	witnessLimit = time.Minute
	rewriteLimit = 30 * time.Second // for an append-only file to be rewritten, before it is copied
	rewriteEvery = 20 * time.Millisecond
)

// currentRedis is the server that the APIs and workers use now.
func (c *cast) currentRedis() *localservers.Redis {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.redis
}

// awaitWitnessed waits until everything in the streams was accepted after the last death of an API. What an API accepted
// that is dead by now, and no worker has persisted, nobody could bring back: that would be no fault of the pipeline.
func (s *stage) awaitWitnessed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, witnessLimit)
	defer cancel()
	for ctx.Err() == nil {
		if s.witnessed(ctx) {
			return
		}
		sleep(ctx, settleEvery)
	}
}

func (s *stage) witnessed(ctx context.Context) bool {
	var lastDeath time.Time
	for _, a := range s.cast.actors {
		if a.front == nil {
			continue
		}
		if _, err := a.running(ctx); err != nil {
			return false
		}
		if died := a.lastDeath(); died.After(lastDeath) {
			lastDeath = died
		}
	}
	for p := range pipeline.Partition(partitions) {
		oldest, err := s.cast.rdb.XRangeN(ctx, pipeline.DefaultKeys.Orders(p), "-", "+", 1).Result()
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
type flushAll struct {
	cast *cast
	hits int
}

func (f *flushAll) do(ctx context.Context) error {
	if err := f.cast.rdb.FlushAll(ctx).Err(); err != nil {
		return err
	}
	f.hits++
	return nil
}

func (f *flushAll) undo(context.Context) (int, error) { return f.hits, nil }

// oldFile has Redis come back from a power cut with files of a moment before: a snapshot of a disk that was restored, or a
// disk that lied about what it had written.
type oldFile struct {
	cast *cast
	dice uint64
	hits int
}

func (f *oldFile) do(ctx context.Context) error {
	server := f.cast.currentRedis()
	saved, err := f.cast.copyFiles(ctx, server)
	if err != nil {
		return err
	}
	sleep(ctx, share(f.dice, leastLag, mostLag))
	if err := server.Kill(); err != nil {
		return err
	}
	f.hits++
	return server.RestoreData(saved)
}

func (f *oldFile) undo(ctx context.Context) (int, error) {
	return f.hits, f.cast.currentRedis().Restart(ctx)
}

// copyFiles copies the append-only files of a running server, in a moment in which it is not replacing them.
func (c *cast) copyFiles(ctx context.Context, server *localservers.Redis) (localservers.Saved, error) {
	ctx, cancel := context.WithTimeout(ctx, rewriteLimit)
	defer cancel()
	if err := c.rdb.ConfigSet(ctx, "auto-aof-rewrite-percentage", "0").Err(); err != nil {
		return localservers.Saved{}, err
	}
	defer func() { _ = c.rdb.ConfigSet(ctx, "auto-aof-rewrite-percentage", "100").Err() }() // a restart does the same
	for {
		info, err := c.rdb.Info(ctx, "persistence").Result()
		if err != nil {
			return localservers.Saved{}, err
		}
		if strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0") {
			return server.SaveData()
		}
		sleep(ctx, rewriteEvery)
	}
}

// failover kills Redis and puts a replica in its place that had stopped to follow a moment before.
type failover struct {
	cast    *cast
	dice    uint64
	replica *localservers.Redis
	hits    int
}

func (f *failover) do(ctx context.Context) error {
	primary := f.cast.currentRedis()
	replica, err := primary.StartReplica(ctx)
	if err != nil {
		return err
	}
	// A replica that lags is one that has stopped hearing: from here on it knows of nothing more.
	if err := replica.Promote(ctx); err != nil {
		return errors.Join(err, replica.Close())
	}
	sleep(ctx, share(f.dice, leastLag, mostLag))
	f.replica = replica
	if err := primary.Kill(); err != nil {
		return err
	}
	f.hits++
	return os.RemoveAll(filepath.Join(primary.Dir(), "appendonlydir")) // it never comes back
}

func (f *failover) undo(context.Context) (int, error) {
	if f.hits == 0 {
		return 0, nil
	}
	return f.hits, f.cast.moveTo(f.replica)
}

// moveTo leads everybody to another Redis.
func (c *cast) moveTo(server *localservers.Redis) error {
	c.mu.Lock()
	c.redis = server
	c.mu.Unlock()
	var errs []error
	for name, link := range c.links {
		if strings.HasSuffix(name, ">redis") {
			errs = append(errs, link.Retarget(server.URL()))
		}
	}
	return errors.Join(errs...)
}
