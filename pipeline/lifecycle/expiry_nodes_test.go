package lifecycle_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/db"
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/notification"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/worker"
)

const (
	nodeRedis    = "SLUICE_TEST_NODE_REDIS" // where a node of TestExpiryOnManyNodes finds its stores
	nodeDatabase = "SLUICE_TEST_NODE_DATABASE"

	nodes     = 100
	nodeTick  = 200 * time.Millisecond
	nodeTicks = 50
	nodesUp   = "nodes-up"   // counter in Redis of the nodes that have begun
	nodeRuns  = "node-runs"  // list in Redis: "begin <pid>", "end <pid>"
	nodeKills = "node-kills" // list in Redis: how many more nodes shall die in the middle of a run
)

// runNode is one process among many that schedule the expiry. It takes what a worker takes, and notes its runs in
// Redis.
func runNode(redisURL, databaseURL string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		return err
	}
	options.MaxRetries = -1
	rdb, reader := redis.NewClient(options), redis.NewClient(options)
	defer func() { _, _ = rdb.Close(), reader.Close() }()
	store, err := db.Open(ctx, databaseURL, db.Options{MaxConns: 1})
	if err != nil {
		return err
	}
	defer store.Close()
	log, keys := slog.New(slog.DiscardHandler), pipeline.Keys{Prefix: "rig"}
	notifier := notification.NewNotifier(rdb, keys, log)
	expire := lifecycle.NewExpirer(store, notifier, nil, log).Job()
	expire.Every = nodeTick
	run := expire.Run
	expire.Run = func(ctx context.Context) error {
		if err := rdb.RPush(ctx, nodeRuns, "begin "+strconv.Itoa(os.Getpid())).Err(); err != nil {
			return err
		}
		err := run(ctx)
		if rdb.LPop(context.WithoutCancel(ctx), nodeKills).Err() == nil {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return errors.Join(err, rdb.RPush(context.WithoutCancel(ctx), nodeRuns, "end "+strconv.Itoa(os.Getpid())).Err())
	}
	releaser := lifecycle.NewReleaser(rdb, keys, store, notification.NewHandOverNotifier(notifier, nil, log), nil, log)
	worker, err := worker.New(worker.Config{
		Redis: rdb, Reader: reader, Keys: keys, Store: store, Options: worker.Options{Partitions: 1, Concurrency: 1},
		Jobs: []pipeline.Job{expire, releaser.Job()}, Log: log,
	})
	if err != nil {
		return err
	}
	if err := rdb.Incr(ctx, nodesUp).Err(); err != nil {
		return err
	}
	worker.Run(ctx)
	return nil
}

// TestExpiryOnManyNodes: a hundred processes schedule the expiry over fifty ticks, some are killed in the middle of a
// run. Each tick has one run, and every unit comes back once.
func TestExpiryOnManyNodes(t *testing.T) {
	t.Parallel()
	const orders, deaths = 500, 5
	server, postgres := testkit.PrivateRedis(t), testkit.PrivatePostgres(t)
	r := pipelinetest.New(t, pipelinetest.Options{
		RedisURL: server.URL(), DatabaseURL: postgres.URL(), Partitions: 1,
		Sale: pipeline.Sale{Total: orders, PaymentWindow: time.Hour},
	})
	r.AdmitMany("buyer", orders)
	r.Persist(r.Events(r.Sale)...)
	ended := startNodes(r, nodes)
	// So many processes take their time to start, and one that is stopped before it has begun ends with a failure.
	testkit.Eventually(t, 3*pipelinetest.SettleLimit, "every node", func() bool {
		return r.Redis.Get(r.Ctx(), nodesUp).Val() == strconv.Itoa(nodes)
	})
	// They come due one after the other, so that every tick has some.
	r.Exec(orders, `
		update orders o set pay_by = now() + interval '2 s' + n.n * $1::interval
		from (select id, row_number() over () as n from orders) n where n.id = o.id`,
		(nodeTicks * nodeTick / orders).String())

	runs := func() []string {
		lines, err := r.Redis.LRange(r.Ctx(), nodeRuns, 0, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		return lines
	}
	testkit.Eventually(t, pipelinetest.SettleLimit, "the first run", func() bool { return len(runs()) > 0 })
	began, first := time.Now(), len(runs())
	for death := range deaths {
		testkit.Eventually(t, pipelinetest.SettleLimit, "some ticks", func() bool {
			return len(runs())-first >= 2*nodeTicks*death/deaths
		})
		if err := r.Redis.RPush(r.Ctx(), nodeKills, "die").Err(); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, pipelinetest.SettleLimit, "fifty ticks", func() bool { return len(runs())-first >= 2*nodeTicks })
	lines, took := runs()[first:], time.Since(began)
	testkit.Eventually(t, pipelinetest.SettleLimit, "every unit is back", func() bool { return r.Stock(r.Sale) == orders })
	testkit.Eventually(t, pipelinetest.SettleLimit, "every release is recorded", func() bool {
		due, err := r.Store.UnappliedReleases(r.Ctx(), pipeline.SalePartition{}, 1)
		return err == nil && len(due) == 0
	})
	testkit.Eventually(t, pipelinetest.SettleLimit, "every death", func() bool {
		return r.Redis.LLen(r.Ctx(), nodeKills).Val() == 0
	})
	killed := ended()

	overlaps := overlapping(lines)
	begun := strings.Count(strings.Join(lines, "\n"), "begin")
	if most := int(took/(nodeTick*9/10)) + 2; begun > most {
		t.Errorf("%d runs in %s: at most %d are one per tick", begun, took, most)
	}
	if killed != deaths {
		t.Errorf("%d nodes died, want %d", killed, deaths)
	}
	r.Balanced(r.Sale, 0)
	if got := r.SaleHash(0, r.Sale.ID)["released"]; got != strconv.Itoa(orders) {
		t.Errorf("Redis counts %s releases, want %d", got, orders)
	}
	t.Logf(
		"%d runs by %d processes in %s, %.1f per tick, %d overlapping; %d killed in the middle of a run", begun, nodes,
		took.Round(time.Millisecond), float64(begun)*float64(nodeTick)/float64(took), overlaps, killed,
	)
}

// overlapping counts the runs that began before the one before it had noted its end. A lock can't prevent that where
// the system lets a process stand still for longer than its lease: it learns of the loss, and stock and orders must be
// right all the same.
func overlapping(lines []string) int {
	open, overlaps := "", 0
	for i, line := range lines {
		what, pid, _ := strings.Cut(line, " ")
		if what == "end" {
			open = ""
			continue
		}
		if open != "" && slices.Contains(lines[i:], "end "+open) { // else it was killed
			overlaps++
		}
		open = pid
	}
	return overlaps
}

// startNodes starts processes, and returns a function that ends them and returns how many were killed before.
func startNodes(r *pipelinetest.Rig, n int) (end func() (killed int)) {
	r.Helper()
	var commands []*exec.Cmd
	for range n {
		command := exec.Command(os.Args[0])
		command.Env = append(os.Environ(), nodeRedis+"="+r.Options.RedisURL, nodeDatabase+"="+r.Options.DatabaseURL)
		command.Stderr = os.Stderr
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := command.Start(); err != nil {
			r.Fatal(err)
		}
		commands = append(commands, command)
	}
	var once sync.Once
	killed := 0
	end = func() int {
		once.Do(func() {
			for _, c := range commands {
				_ = c.Process.Signal(syscall.SIGTERM)
			}
			for _, c := range commands {
				err := c.Wait()
				if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
					killed++
				} else if err != nil {
					r.Errorf("a node: %v", err)
				}
			}
		})
		return killed
	}
	r.Cleanup(func() { end() })
	return end
}
