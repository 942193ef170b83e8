package worker_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/localservers"
	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/worker"
)

// crowd lets n new buyers order one unit each at once, and sorts them by their answer: a code, or an error's message.
func crowd(r *pipelinetest.Rig, prefix string, n int) map[string]int {
	r.Helper()
	var mu sync.Mutex // protects answers
	answers := map[string]int{}
	pipelinetest.Together(n, func(i int) {
		decision, err := r.Try(pipeline.OrderRequest{UserID: fmt.Sprintf("%s-%d", prefix, i), Quantity: 1})
		answer := string(decision.Result)
		if e, ok := errors.AsType[*pipeline.Error](err); ok {
			answer = e.Message
		}
		mu.Lock()
		defer mu.Unlock()
		answers[answer]++
	})
	return answers
}

// TestPostgresAwayUntilTheBacklogIsFull: orders are accepted up to the limit and no further; when Postgres is back,
// everything drains and accepts go on by themselves.
func TestPostgresAwayUntilTheBacklogIsFull(t *testing.T) {
	t.Parallel()
	const limit = 150
	postgres := testkit.PrivatePostgres(t)
	r := pipelinetest.New(t, pipelinetest.Options{
		DatabaseURL: postgres.URL(), Sale: pipeline.Sale{Total: 1000}, Admission: admission.Options{StreamMaxLag: limit},
	})
	r.StartWorker(r.Store, worker.Options{BatchSize: 20})
	if err := postgres.Kill(); err != nil {
		t.Fatal(err)
	}
	first := crowd(r, "first", 400) // some batches go in whole and one in part
	if first[string(lua.AdmitAccepted)] != limit || first[string(lua.AdmitBacklogFull)] != 400-limit {
		t.Errorf("got %v, want %d accepted and a full backlog for the rest", first, limit)
	}
	if got := r.Labelled("sluice_admissions_total", "result", "backlog-full"); got != 400-limit {
		t.Errorf("the metric counts %v refusals, want %d", got, 400-limit)
	}
	if got := r.StreamLength(); got != limit {
		t.Errorf("got %d events in the stream, want %d", got, limit)
	}
	if err := postgres.Restart(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, pipelinetest.SettleLimit, "orders to be accepted again", func() bool {
		decision, err := r.Try(pipeline.OrderRequest{UserID: "late", Quantity: 1})
		return err == nil && decision.Result != admission.BacklogFull
	})
	r.Settled()
	r.AdmitMany("second", limit)
	r.Settled()
	r.Balanced(r.Sale, 2*limit+1)
}

// TestARedisThatFillsUpFreesItself: each event that workers settle frees memory for new orders.
func TestARedisThatFillsUpFreesItself(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 1 << 20}})
	accepted := fillMemory(r, "round") // no worker has ever run
	r.StartWorker(r.Store, worker.Options{})
	r.Settled()
	more := crowd(r, "after", 100)
	if more[string(lua.AdmitAccepted)] != 100 {
		t.Errorf("with the stream empty: got %v, want 100 accepts", more)
	}
	r.Settled()
	r.Balanced(r.Sale, int64(accepted+100))
}

// fillMemory leaves Redis one more MiB and lets buyers order until it is used up. It returns how many were accepted.
func fillMemory(r *pipelinetest.Rig, prefix string) (accepted int) {
	r.Helper()
	used, err := r.Redis.Info(r.Ctx(), "memory").Result()
	if err != nil {
		r.Fatal(err)
	}
	var bytes int64
	for line := range strings.Lines(used) {
		_, _ = fmt.Sscanf(line, "used_memory:%d", &bytes)
	}
	if err := r.Redis.ConfigSet(r.Ctx(), "maxmemory", fmt.Sprint(bytes+4<<20)).Err(); err != nil {
		r.Fatal(err)
	}
	refused := 0
	for round := 0; refused == 0; round++ {
		answers := crowd(r, fmt.Sprintf("%s-%d", prefix, round), 200)
		accepted += answers[string(lua.AdmitAccepted)]
		refused = answers["Redis is out of memory"]
		if accepted+refused != 200*(round+1) {
			r.Fatalf("got %v, want accepts and then no memory", answers)
		}
	}
	return accepted
}

// TestARebuiltRedisThatFillsUpFreesItself: the groups are lost with everything else, no worker creates them again
// before the memory is full, and yet what was accepted is delivered.
func TestARebuiltRedisThatFillsUpFreesItself(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL(), Sale: pipeline.Sale{Total: 1 << 20}})
	r.Flush()
	r.Ensure()
	accepted := fillMemory(r, "round")
	r.StartWorker(r.Store, worker.Options{})
	r.Settled()
	r.Balanced(r.Sale, int64(accepted))
}

// TestTheDiskOfRedisIsFull limits the process' file size in place of a full disk: the same writes fail.
func TestTheDiskOfRedisIsFull(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"everysec", "always"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			server := testkit.PrivateRedis(t, "appendfsync "+policy)
			r := pipelinetest.New(t, pipelinetest.Options{
				RedisURL: server.URL(), Sale: pipeline.Sale{Total: 1000},
				Admission: admission.Options{RequestTimeout: 5 * time.Second}, // of the buyers who come while Redis is gone
			})
			r.Verifies()
			r.StartWorker(r.Store, worker.Options{BatchSize: 20})
			r.AdmitMany("before", 50)
			if err := server.LimitFiles(1); err != nil {
				if errors.Is(err, errors.ErrUnsupported) {
					t.Skip("this system can't limit the files of a running process, which stands for a full disk")
				}
				t.Fatal(err)
			}
			// everysec: writes are refused. always: a write that is not on disk can't be confirmed, so the process ends.
			testkit.Eventually(t, pipelinetest.CallLimit, "the disk to be noticed as full", func() bool {
				err := r.Redis.Set(r.Ctx(), "filler", "x", 0).Err()
				return redis.HasErrorPrefix(err, "MISCONF") || server.PID() == 0
			})
			answers := crowd(r, "meanwhile", 20)
			if answers[string(lua.AdmitAccepted)] != 0 {
				t.Errorf("on a full disk: got %v, want no accept", answers)
			}
			if policy == "everysec" && answers["Redis can't write to its disk"] != 20 {
				t.Errorf("got %v, want the reason", answers)
			}
			if server.PID() == 0 {
				if err := server.Restart(r.Ctx()); err != nil { // which lifts the limit
					t.Fatal(err)
				}
			} else if err := server.LiftLimit(); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, pipelinetest.CallLimit, "orders to be accepted again", func() bool {
				decision, err := r.Try(pipeline.OrderRequest{UserID: "late", Quantity: 1})
				return err == nil && (decision.Result == admission.Accepted || decision.Result == admission.AlreadyOrdered)
			})
			r.AdmitMany("after", 50)
			r.Settled()
			r.Balanced(r.Sale, int64(len(r.Slots(r.Sale))))
			if got := len(r.Slots(r.Sale)); got < 101 {
				t.Errorf("got %d orders, want at least the 101 that were accepted", got)
			}
		})
	}
}

// TestTheDiskOfPostgresIsFull: what does not fit waits in the stream, none of it is mistaken for bad data, and once
// there is room again it is persisted.
func TestTheDiskOfPostgresIsFull(t *testing.T) {
	t.Parallel()
	postgres := testkit.PrivatePostgres(t, "autovacuum = off")
	log := &pipelinetest.LockedLog{}
	r := pipelinetest.New(t, pipelinetest.Options{
		DatabaseURL: postgres.URL(), Sale: pipeline.Sale{Total: 2000}, Log: slog.NewTextHandler(log, nil),
	})
	free := fillDisk(r, postgres)
	r.AdmitMany("buyer", 1000)
	r.StartWorker(r.Store, worker.Options{BatchSize: 50})
	testkit.Eventually(t, pipelinetest.SettleLimit, "the disk to be full", func() bool {
		return log.Count("SQLSTATE 53100") >= 3
	})
	r.AdmitMany("meanwhile", 100)
	if got := r.StreamLength(); got == 0 || r.Rows(r.Sale.ID) >= 1100 {
		t.Errorf("%d events are left, %d rows are there: the disk was not full", got, r.Rows(r.Sale.ID))
	}
	free()
	r.Settled()
	r.Balanced(r.Sale, 1100)
	if got := r.Count("sluice_dead_letters_total"); got != 0 {
		t.Errorf("%v orders were buried, want none", got)
	}
}

// fillDisk leaves little room for orders, until free is called. With the rights of root they are on a disk of their
// own; otherwise their table is one page short of a limit on the size of files.
func fillDisk(r *pipelinetest.Rig, postgres *localservers.Postgres) (free func()) {
	const (
		page  = 8192
		pages = 2048 // 16 MiB, the size of a file of the write-ahead log: that one must still fit
	)
	if disk, ok := testkit.SmallPostgresDisk(r.T, postgres, 16*page); ok {
		r.Exec(0, `create tablespace small location '`+disk.Dir+`'`)
		r.Exec(0, `alter table orders set tablespace small`)
		return func() { disk.Grow(pages * page) }
	}
	r.CreateSale(pipeline.Sale{ID: "filler"})
	r.Exec(0, `alter table orders alter column reason set storage plain`)
	r.Exec(pages-1, `insert into orders
		(sale_id, id, number, user_id, quantity, status, reason, partition, sequence, accepted_at, closed_at)
		select 'filler', gen_random_uuid(), n, 'filler-' || n, 1, 'rejected', repeat('x', 7980), 0, n, now(), now()
		from generate_series(1, $1::integer) n`, pages-1)
	// Half a page beyond: a write that is cut short is how Postgres up to 15 learns that a disk is full.
	if err := postgres.LimitFiles(pages*page + page/2); errors.Is(err, errors.ErrUnsupported) {
		r.Skip("this process may not mount a disk, and this system can't limit the files of a running process")
	} else if err != nil {
		r.Fatal(err)
	}
	return func() {
		if err := postgres.LiftLimit(); err != nil {
			r.Fatal(err)
		}
	}
}
