package lock_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/lock"
)

// Tests that kill whole processes start this test binary again, with a role in its environment.
const (
	roleEnv   = "SLUICE_LOCK_ROLE" // hold, wait or once
	serverEnv = "SLUICE_LOCK_SERVER"
	keyEnv    = "SLUICE_LOCK_KEY"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(play(role))
	}
	flag.Parse()
	// Most of these tests wait for leases to end: with one per processor the processors would be idle.
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	testkit.Main(m)
}

// play is the whole of a child process.
func play(role string) int {
	options, err := redis.ParseURL(os.Getenv(serverEnv))
	if err != nil {
		return 2
	}
	options.PoolSize = 2
	rdb := redis.NewClient(options)
	l, key := lock.New(rdb, lock.WithTTL(2*time.Second)), os.Getenv(keyEnv)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // no process outlives a test that died
	defer cancel()
	switch role {
	case "hold":
		if _, err := l.Mutex(key).Lock(ctx); err != nil {
			return 1
		}
		fmt.Fprintln(os.Stdout, "holding")
	case "wait":
		fmt.Fprintln(os.Stdout, "waiting")
		_, _ = l.Mutex(key).Lock(ctx)
	case "once":
		return playOnce(ctx, rdb, l, key)
	}
	<-ctx.Done()
	return 0
}

func childEnv(role, server, key string) []string {
	return append(os.Environ(),
		roleEnv+"="+role, serverEnv+"="+server, keyEnv+"="+key, "GOMAXPROCS=1", "GORACE=atexit_sleep_ms=0")
}

// child starts a process and waits for its first line.
func child(t *testing.T, role, server, key string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = childEnv(role, server, key)
	out := must(cmd.StdoutPipe())(t)
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%s: %v", role, err)
	}
	return cmd
}

// A holder that is killed keeps the others out for its lease, and no longer; killed waiters cost nothing.
func TestKilledHoldersAndWaiters(t *testing.T) {
	f := newFixture(t)
	server, key := testkit.PrivateRedis(t, "appendonly no").URL(), "a"
	rdb := testkit.Client(t, server)
	holder := child(t, "hold", server, key)
	waiting := func(n int) {
		testkit.Eventually(t, callLimit, fmt.Sprintf("%d waiters", n), func() bool {
			return rdb.ZCard(f.ctx, "{"+key+"}:queue").Val() == int64(n)
		})
	}
	var waiters []*exec.Cmd
	for i := range 3 {
		waiters = append(waiters, child(t, "wait", server, key))
		waiting(i + 1)
	}
	l := lock.New(rdb)
	defer func() { _ = l.Close() }()
	got := make(chan lock.Hold, 1)
	go func() { h, _ := l.Mutex(key).Lock(f.ctx); got <- h }()
	waiting(4)
	for _, w := range waiters {
		check(t, w.Process.Kill())
		_ = w.Wait()
	}
	if len(got) > 0 {
		t.Error("the lock was given away while its holder lived")
	}
	check(t, holder.Process.Kill())
	h := <-got
	if h == nil {
		t.Fatal("the lock of the killed holder was never had")
	}
	f.unlock(h)
}

const (
	onceNodes = 100
	onceTicks = 50
	onceTick  = 250 * time.Millisecond
)

// playOnce is a node that schedules the job: it asks several times in each tick, at an offset of its own. It records a
// run by its tick; every tenth run kills its process in the middle.
func playOnce(ctx context.Context, rdb *redis.Client, l *lock.Client, key string) int {
	for rdb.Get(ctx, "go").Err() != nil { // until all have started
		time.Sleep(5 * time.Millisecond)
	}
	for rdb.Get(ctx, "stop").Err() != nil {
		_, _ = l.RunOnce(ctx, key, onceTick, func(leased context.Context) error {
			// The end of our tick. Read within our lease, it can't be another's yet.
			tick, err := rdb.PExpireTime(leased, key).Result()
			var runs int64
			if err == nil { // otherwise it is too late to know; the tick stays taken
				runs, err = rdb.RPush(ctx, "runs", tick.Milliseconds()).Result()
			}
			if err == nil && runs%10 == 0 {
				self, _ := os.FindProcess(os.Getpid())
				_ = self.Kill()
				select {}
			}
			return nil
		})
		time.Sleep(onceTick/4 + rand.N(onceTick/2))
	}
	return 0
}

// A hundred processes schedule a job for fifty ticks, and every tenth run kills its process: no tick has two runs, and
// no more than a death or two is missing.
func TestRunOnceOnAHundredProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a hundred processes")
	}
	t.Parallel()
	server := testkit.PrivateRedis(t, "appendonly no", "maxclients 1000")
	rdb := testkit.Client(t, server.URL())
	ctx, cancel := context.WithTimeout(context.Background(), 4*callLimit)
	defer cancel()
	nodes := make([]*exec.Cmd, onceNodes)
	for i := range nodes {
		nodes[i] = exec.CommandContext(ctx, os.Args[0])
		nodes[i].Env = childEnv("once", server.URL(), "job")
		check(t, nodes[i].Start())
	}
	testkit.Eventually(t, 2*callLimit, "the processes to start", func() bool {
		return strings.Count(rdb.ClientList(ctx).Val(), "\n") >= onceNodes
	})
	began := must(rdb.Time(ctx).Result())(t)
	rdb.Set(ctx, "go", 1, 0)
	for { // fifty ticks by the server's clock
		now := must(rdb.Time(ctx).Result())(t)
		if now.Sub(began) >= onceTicks*onceTick {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	rdb.Set(ctx, "stop", 1, 0)
	took := must(rdb.Time(ctx).Result())(t).Sub(began)
	killed := reap(nodes)
	runs := must(rdb.LRange(ctx, "runs", 0, -1).Result())(t)
	most := int(took/onceTick) + 2 // the first at once, and the last a tenth early
	if len(runs) > most || len(runs) < most/2 {
		t.Errorf("%d runs in %s, want about %d, and never more than %d", len(runs), took, onceTicks, most)
	}
	var last int64
	slices.Sort(runs) // a busy machine may write them down late; all have as many digits
	for i, text := range runs {
		at := must(strconv.ParseInt(text, 10, 64))(t)
		if gap := time.Duration(at-last) * time.Millisecond; gap < onceTick {
			t.Errorf("the tick of run %d is %s after the one before it, a tick is %s", i, gap, onceTick)
		}
		last = at
	}
	if killed < 2 {
		t.Errorf("only %d processes died in the middle of a run", killed)
	}
	t.Logf("%d runs in %.1f ticks on %d processes, %d of which died in the middle of one",
		len(runs), float64(took)/float64(onceTick), onceNodes, killed)
}

// reap waits for all processes and counts those that were killed.
func reap(nodes []*exec.Cmd) (killed int) {
	var mu sync.Mutex // protects killed
	each(nodes, func(i int) {
		var exit *exec.ExitError
		if err := nodes[i].Wait(); errors.As(err, &exit) {
			mu.Lock()
			defer mu.Unlock()
			killed++
		}
	})
	return killed
}
