package chaos

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	scriptEvery = 50 * time.Millisecond
	stormEvery  = 100 * time.Millisecond
	// missLimit is how much longer a fault may go on that struck nothing so far: on a busy machine its blows come late too.
	missLimit = 20 * time.Second
)

// again is a fault that is many blows: it strikes until it is undone, and has struck.
type again struct {
	every time.Duration
	act   func(ctx context.Context) (hits int, err error)

	stop    context.CancelFunc
	striker sync.WaitGroup
	hits    atomic.Int64
}

func (f *again) do(ctx context.Context) error {
	ctx, f.stop = context.WithCancel(context.WithoutCancel(ctx))
	f.striker.Go(func() {
		for ctx.Err() == nil {
			if n, err := f.act(ctx); err == nil { // the server may be down, by another fault
				f.hits.Add(int64(n))
			}
			sleep(ctx, f.every)
		}
	})
	return nil
}

func (f *again) undo(ctx context.Context) (int, error) {
	if f.stop == nil {
		return 0, nil // it never began
	}
	ctx, cancel := context.WithTimeout(ctx, missLimit)
	defer cancel()
	for f.hits.Load() == 0 && ctx.Err() == nil {
		sleep(ctx, f.every)
	}
	f.stop()
	f.striker.Wait()
	return int(f.hits.Load()), nil
}

func (c *cast) forgetScripts(ctx context.Context) (int, error) {
	return 1, c.rdb.ScriptFlush(ctx).Err()
}

// killClients ends every connection to Redis but the one that it uses.
func (c *cast) killClients(ctx context.Context) (int, error) {
	n, err := c.rdb.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Result()
	return int(n), err
}

// endBackends is the same for Postgres.
func (c *cast) endBackends(ctx context.Context) (int, error) {
	var n int
	err := c.pool.QueryRow(ctx, `
		select count(pg_terminate_backend(pid)) from pg_stat_activity
		where pid <> pg_backend_pid() and backend_type = 'client backend'`).Scan(&n)
	return n, err
}
