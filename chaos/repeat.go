package chaos

import (
	"context"
	"sync"
	"time"
)

const (
	scriptEvery = 50 * time.Millisecond
	stormEvery  = 100 * time.Millisecond
)

// again is a fault that is many blows: it strikes until it is undone.
type again struct {
	every time.Duration
	act   func(ctx context.Context) (hits int, err error)

	stop    context.CancelFunc
	striker sync.WaitGroup
	hits    int // of the striker; ours after its end
}

func (f *again) do(ctx context.Context) error {
	ctx, f.stop = context.WithCancel(context.WithoutCancel(ctx))
	f.striker.Go(func() {
		for ctx.Err() == nil {
			if n, err := f.act(ctx); err == nil { // the server may be down, by another fault
				f.hits += n
			}
			sleep(ctx, f.every)
		}
	})
	return nil
}

func (f *again) undo(context.Context) (int, error) {
	f.stop()
	f.striker.Wait()
	return f.hits, nil
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
