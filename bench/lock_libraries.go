package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"sluice/lock"
)

// locker is one way to lock. lock waits until it has it, and returns how to unlock.
type locker struct {
	name string
	lock func(ctx context.Context, key string) (unlock func(context.Context) error, err error)
}

// lockBench is all of them on one server.
type lockBench struct {
	testbed *testbed
	rdb     *redis.Client
	ours    *lock.Client
	rueidis rueidislock.Locker
	lockers []locker // raw first, ours second
}

// lockConnections is enough that nobody waits for one.
const lockConnections = 150

// retryEvery is how often those ask that poll; shorter than any of them does by itself.
const retryEvery = time.Millisecond

func newLockBench(ctx context.Context, s *testbed) (*lockBench, error) {
	port, err := s.listen(ctx)
	if err != nil {
		return nil, err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	d := &lockBench{testbed: s, rdb: redis.NewClient(&redis.Options{Addr: addr, PoolSize: lockConnections})}
	d.ours = lock.New(d.rdb, lock.WithTTL(lockTTL))
	if err := s.control.ConfigSet(ctx, "appendonly", "no").Err(); err != nil {
		return nil, errors.Join(err, d.close(ctx))
	}
	d.rueidis, err = rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}}, KeyMajority: 1, KeyValidity: lockTTL,
		// there is no next server to try; after its 20 ms it gives a call up, and waits to be woken
		TryNextAfter: rueidisWake,
	})
	if err != nil {
		return nil, errors.Join(err, d.close(ctx))
	}
	d.lockers = []locker{
		{"raw SET NX PX + delete", d.raw},
		{"ours", ofOurs(d.ours.Mutex)},
		{"ours, fair", ofOurs(d.ours.FairMutex)},
		{"bsm/redislock", d.redislock(redislock.New(d.rdb))},
		{"go-redsync/redsync", redsyncLock(redsync.New(goredis.NewPool(d.rdb)))},
		{"rueidislock", d.rueidislock},
	}
	return d, nil
}

// listen opens a port of the loopback on Redis: locks are measured over TCP, as others measured theirs.
func (s *testbed) listen(ctx context.Context) (port int, err error) {
	if err := s.control.ConfigSet(ctx, "bind", "127.0.0.1").Err(); err != nil {
		return 0, err
	}
	for range 10 { // somebody else may take a port between our finding it free and Redis' listening on it
		if port, err = freePort(); err != nil {
			return 0, err
		}
		if err = s.control.ConfigSet(ctx, "port", strconv.Itoa(port)).Err(); err == nil {
			break
		}
	}
	return port, err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

func (d *lockBench) close(ctx context.Context) error {
	if d.rueidis != nil {
		d.rueidis.Close()
	}
	return errors.Join(d.ours.Close(), d.rdb.Close(), d.testbed.control.ConfigSet(ctx, "port", "0").Err(),
		d.testbed.control.ConfigSet(ctx, "appendonly", "yes").Err(), d.testbed.awaitRewrite(ctx))
}

var compareAndDelete = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

func (d *lockBench) raw(ctx context.Context, key string) (func(context.Context) error, error) {
	token := uuid.NewString()
	for {
		ok, err := d.rdb.SetNX(ctx, key+":raw", token, lockTTL).Result()
		if err != nil {
			return nil, err
		}
		if ok {
			return func(ctx context.Context) error {
				return compareAndDelete.Run(ctx, d.rdb, []string{key + ":raw"}, token).Err()
			}, nil
		}
		time.Sleep(retryEvery)
	}
}

func ofOurs(mutex func(string) lock.Mutex) func(context.Context, string) (func(context.Context) error, error) {
	return func(ctx context.Context, key string) (func(context.Context) error, error) {
		h, err := mutex(key).Lock(ctx)
		if err != nil {
			return nil, err
		}
		return h.Unlock, nil
	}
}

func (d *lockBench) redislock(c *redislock.Client) func(context.Context, string) (func(context.Context) error, error) {
	return func(ctx context.Context, key string) (func(context.Context) error, error) {
		l, err := c.Obtain(ctx, key+":bsm", lockTTL,
			&redislock.Options{RetryStrategy: redislock.LinearBackoff(retryEvery)})
		if err != nil {
			return nil, err
		}
		return l.Release, nil
	}
}

func redsyncLock(r *redsync.Redsync) func(context.Context, string) (func(context.Context) error, error) {
	return func(ctx context.Context, key string) (func(context.Context) error, error) {
		m := r.NewMutex(key+":redsync", redsync.WithExpiry(lockTTL), redsync.WithTries(1<<30),
			redsync.WithRetryDelay(retryEvery))
		if err := m.LockContext(ctx); err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			_, err := m.UnlockContext(ctx)
			return err
		}, nil
	}
}

// rueidisWake is how long it waits before it asks again: a call that failed on a busy machine changes nothing on the
// server, which then has nothing to wake it for.
const rueidisWake = 2 * time.Second

func (d *lockBench) rueidislock(ctx context.Context, key string) (func(context.Context) error, error) {
	for {
		bounded, cancel := context.WithTimeout(ctx, rueidisWake)
		_, unlock, err := d.rueidis.WithContext(bounded, key+":rueidis")
		if err == nil {
			return func(context.Context) error {
				unlock()
				cancel()
				return nil
			}, nil
		}
		cancel()
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return nil, err
		}
	}
}
