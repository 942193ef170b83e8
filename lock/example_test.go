package lock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/localservers"
	"sluice/lock"
)

// The examples are the steps of docs/locks.md: each shows a failure and its remedy. They run on a server of their own.

// openStage starts a server; end stops it.
func openStage() (ctx context.Context, rdb *redis.Client, end func()) {
	ctx = context.Background()
	server, err := localservers.StartRedis(ctx, "appendonly no")
	if err != nil {
		fmt.Println("the examples need a Redis:", err)
		os.Exit(1)
	}
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		panic(err) // the server's own
	}
	rdb = redis.NewClient(options)
	return ctx, rdb, func() {
		if err := errors.Join(rdb.Close(), server.Close()); err != nil {
			fmt.Println(err)
		}
	}
}

// Step 1: a mutex in the process keeps nobody out of another process.
func Example_step1InProcess() {
	var here, there sync.Mutex // two processes, each with its own
	here.Lock()
	fmt.Println("the second process enters:", there.TryLock())
	// Output: the second process enters: true
}

// Step 2: SETNX, work, DEL. The holder dies, and the lock stays forever.
func Example_step2Setnx() {
	ctx, rdb, end := openStage()
	defer end()
	rdb.SetNX(ctx, "order:1", "locked", 0) // and dies
	fmt.Println("time to live:", rdb.TTL(ctx, "order:1").Val())
	// Fixed: the lock is a lease.
	l := lock.New(rdb, lock.WithTTL(500*time.Millisecond))
	_, _ = l.Mutex("order:2").Lock(ctx, lock.Lease(500*time.Millisecond)) // and dies
	h, err := l.Mutex("order:2").Lock(ctx)
	fmt.Println("the next has it:", err == nil)
	_ = h.Unlock(ctx)
	_ = l.Close()
	// Output:
	// time to live: -1ns
	// the next has it: true
}

// Step 3: SETNX, then EXPIRE. The holder dies between the two; a single command can't be interrupted.
func Example_step3OneCommand() {
	ctx, rdb, end := openStage()
	defer end()
	rdb.SetNX(ctx, "order:1", "locked", 0) // dies before EXPIRE
	fmt.Println("two commands, expires:", rdb.PTTL(ctx, "order:1").Val() > 0)
	rdb.SetArgs(ctx, "order:2", "token", redis.SetArgs{Mode: "NX", TTL: time.Minute})
	fmt.Println("one command, expires:", rdb.PTTL(ctx, "order:2").Val() > 0)
	// Output:
	// two commands, expires: false
	// one command, expires: true
}

// Step 4: the work outlives the lease, and its DEL frees another's lock.
func Example_step4Token() {
	ctx, rdb, end := openStage()
	defer end()
	rdb.Set(ctx, "order:1", "second holder", time.Minute) // the first one's lease ran out
	rdb.Del(ctx, "order:1")                               // the first is done
	fmt.Println("DEL: the second is still alone:", rdb.Exists(ctx, "order:1").Val() == 1)

	l := lock.New(rdb)
	first, _ := l.Mutex("order:2").Lock(ctx, lock.Lease(500*time.Millisecond))
	second, _ := l.Mutex("order:2").Lock(ctx)
	fmt.Println("late unlock is refused:", errors.Is(first.Unlock(ctx), lock.ErrNotHeld))
	_, err := l.Mutex("order:2").TryLock(ctx)
	fmt.Println("the second is still alone:", errors.Is(err, lock.ErrNotAcquired))
	_ = second.Unlock(ctx)
	_ = l.Close()
	// Output:
	// DEL: the second is still alone: false
	// late unlock is refused: true
	// the second is still alone: true
}

// Step 5: compare, pause, delete: the same hole. A script is one step.
func Example_step5Script() {
	ctx, rdb, end := openStage()
	defer end()
	rdb.Set(ctx, "order:1", "first", 0)
	ours := rdb.Get(ctx, "order:1").Val() == "first"
	rdb.Set(ctx, "order:1", "second", 0) // in the pause
	if ours {
		rdb.Del(ctx, "order:1")
	}
	fmt.Println("two steps: the second one's lock is there:", rdb.Exists(ctx, "order:1").Val() == 1)

	rdb.Set(ctx, "order:2", "second", 0)
	script := redis.NewScript(`
		if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
		return 0`)
	freed, _ := script.Run(ctx, rdb, []string{"order:2"}, "first").Int()
	fmt.Println("one script frees:", freed)
	// Output:
	// two steps: the second one's lock is there: false
	// one script frees: 0
}

// Step 6: a function that holds the lock calls one that takes it.
func Example_step6Reentry() {
	ctx, rdb, end := openStage()
	defer end()
	l := lock.New(rdb)
	m := l.Mutex("order:1")
	outer, _ := m.Lock(ctx)
	_, err := m.Lock(ctx, lock.Wait(20*time.Millisecond))
	fmt.Println("waits for itself:", errors.Is(err, lock.ErrNotAcquired))
	_ = outer.Unlock(ctx)

	me := lock.NewOwner()
	outer, _ = m.Lock(ctx, lock.As(me))
	inner, err := m.Lock(ctx, lock.As(me))
	fmt.Println("the same owner enters:", err == nil, "with the same fence:", inner.Fence() == outer.Fence())
	_ = inner.Unlock(ctx)
	_, err = m.TryLock(ctx)
	fmt.Println("held until the last leaves:", errors.Is(err, lock.ErrNotAcquired))
	_ = outer.Unlock(ctx)
	_ = l.Close()
	// Output:
	// waits for itself: true
	// the same owner enters: true with the same fence: true
	// held until the last leaves: true
}

// Step 7: "not free" would be free in a moment. The lock is transferred to waiters, in order.
func Example_step7Wait() {
	ctx, rdb, end := openStage()
	defer end()
	l := lock.New(rdb)
	m := l.Mutex("order:1")
	h, _ := m.Lock(ctx)
	_, err := m.TryLock(ctx)
	fmt.Println("at once:", err)
	time.AfterFunc(20*time.Millisecond, func() { _ = h.Unlock(ctx) })
	next, err := m.Lock(ctx, lock.Wait(time.Minute))
	fmt.Println("waited:", err)
	_ = next.Unlock(ctx)
	_ = l.Close()
	// Output:
	// at once: lock: held by others
	// waited: <nil>
}

// Step 8: no TTL is right for all work. A lease is renewed while the work lasts.
func Example_step8Renewal() {
	ctx, rdb, end := openStage()
	defer end()
	l := lock.New(rdb, lock.WithTTL(3*time.Second))
	fixed, _ := l.Mutex("order:1").Lock(ctx, lock.Lease(500*time.Millisecond))
	renewed, _ := l.Mutex("order:2").Lock(ctx)
	first := renewed.ValidUntil()
	for renewed.ValidUntil().Equal(first) && renewed.Context().Err() == nil { // the work
		time.Sleep(5 * time.Millisecond)
	}
	fmt.Println("fixed lease:", context.Cause(fixed.Context()))
	fmt.Println("renewed lease is longer:", renewed.ValidUntil().After(first))
	_ = renewed.Unlock(ctx)
	_ = l.Close()
	// Output:
	// fixed lease: lock: the lease is over
	// renewed lease is longer: true
}

// Step 9: a suspended holder still believes that it has the lock. Its context has ended, and the store refuses its
// fence.
func Example_step9Fence() {
	ctx, rdb, end := openStage()
	defer end()
	l := lock.New(rdb)
	stored := int64(0) // of the row; in SQL: update … set fence = $1 where id = $2 and fence <= $1
	write := func(fence int64) bool {
		if fence < stored {
			return false
		}
		stored = fence
		return true
	}
	paused, _ := l.Mutex("order:1").Lock(ctx, lock.Lease(500*time.Millisecond))
	next, _ := l.Mutex("order:1").Lock(ctx)
	fmt.Println("the next writes:", write(next.Fence()))
	fmt.Println("the paused one's context:", context.Cause(paused.Context()))
	fmt.Println("the paused one writes:", write(paused.Fence()))
	_ = next.Unlock(ctx)
	_ = l.Close()
	// Output:
	// the next writes: true
	// the paused one's context: lock: the lease is over
	// the paused one writes: false
}

// Step 10: the only server forgets the lock. In a quorum, a server that has just started does not vote: it may have
// forgotten.
func Example_step10Quorum() {
	ctx, rdb, end := openStage()
	defer end()
	l := lock.New(rdb)
	_, _ = l.Mutex("order:1").Lock(ctx)
	rdb.FlushAll(ctx) // or a failover to a replica that never had it
	_, err := l.Mutex("order:1").TryLock(ctx)
	fmt.Println("one server, a second holder:", err == nil)

	young := lock.New(rdb, lock.WithTTL(time.Hour))
	_, err = lock.Quorum(young).Mutex("order:2").TryLock(ctx)
	fmt.Println("a young server votes:", err == nil, strings.Contains(fmt.Sprint(err), "does not vote yet"))
	_, _ = l.Close(), young.Close()
	// Output:
	// one server, a second holder: true
	// a young server votes: false true
}

func ExampleDo() {
	ctx, rdb, end := openStage()
	defer end()
	l := lock.New(rdb)
	defer func() { _ = l.Close() }()
	err := lock.Do(ctx, l.Mutex("report"), func(ctx context.Context, fence int64) error {
		fmt.Println("alone, with a fence:", fence > 0)
		return ctx.Err()
	}, lock.Wait(time.Minute))
	fmt.Println(err)
	// Output:
	// alone, with a fence: true
	// <nil>
}

func ExampleAll() {
	ctx, rdb, end := openStage()
	defer end()
	l := lock.New(rdb)
	defer func() { _ = l.Close() }()
	h, err := lock.All(l.Mutex("account:2"), l.RWMutex("rates").RLocker(), l.Mutex("account:1")).Lock(ctx)
	fmt.Println(err, h.Context().Err(), h.Unlock(ctx))
	// Output: <nil> <nil> <nil>
}

func ExampleClient_CountDownLatch() {
	ctx, rdb, end := openStage()
	defer end()
	l := lock.New(rdb)
	defer func() { _ = l.Close() }()
	ready := l.CountDownLatch("drop-1:ready", 2, time.Hour)
	for _, node := range []string{"api-1", "api-1", "api-2"} { // one reports twice
		missing, _ := ready.CountDown(ctx, node)
		fmt.Println(node, missing)
	}
	fmt.Println(ready.Wait(ctx))
	// Output:
	// api-1 1
	// api-1 1
	// api-2 0
	// <nil>
}
