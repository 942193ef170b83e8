package db_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/db"
	"sluice/internal/testkit"
	"sluice/pipeline"
)

// Two writers get the same thousands of events of several sales, in overlapping batches and opposite orders. Neither
// sees an error, and each order is inserted exactly once.
func TestWritersInOppositeOrders(t *testing.T) {
	f := setup(t)
	var all []pipeline.Event
	const perSale = 1500
	for _, id := range []string{"a", "b", "c", "d"} {
		f.sale(id, perSale)
		all = append(all, events(id, perSale)...)
	}
	random := rand.New(rand.NewPCG(7, 7))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	backwards := slices.Clone(all)
	slices.Reverse(backwards)

	var mu sync.Mutex
	counts := map[string]int{}
	var writers sync.WaitGroup
	for i, list := range [][]pipeline.Event{all, backwards, all, backwards} {
		writers.Go(func() {
			for batch := range slices.Chunk(list, 97+10*i) { // no two writers cut in the same places
				outcomes, err := f.store.PersistOrders(f.ctx(), 1, batch)
				if err != nil {
					t.Errorf("writer %d: %v", i, err)
					return
				}
				mu.Lock()
				for j, outcome := range outcomes {
					switch outcome {
					case inserted:
						counts[batch[j].OrderID]++
					case redelivered:
					default:
						t.Errorf("got %s for a plain order", outcome)
					}
				}
				mu.Unlock()
			}
		})
	}
	writers.Wait()
	for _, e := range all {
		if counts[e.OrderID] != 1 {
			t.Fatalf("order %s was inserted %d times", e.OrderID, counts[e.OrderID])
		}
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		if got, want := f.books(id), (books{perSale, perSale, perSale}); got != want {
			t.Errorf("sale %s: got %+v, want %+v", id, got, want)
		}
		if got := f.watermark(id, 3); got != perSale {
			t.Errorf("watermark of %s: got %d, want %d", id, got, perSale)
		}
	}
	f.wantNoDeadlocks()
}

// Batches that share no event still share the sales, which each of them names in another order.
func TestBatchesOfTheSameSales(t *testing.T) {
	f := setup(t)
	const sales, rounds, writers = 12, 40, 4
	for i := range sales {
		f.sale(fmt.Sprint("sale-", i), rounds*writers)
	}
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(3, uint64(w)))
			for round := range int64(rounds) {
				var batch []pipeline.Event
				for _, i := range random.Perm(sales) {
					e := event(fmt.Sprint("sale-", i), fmt.Sprint(w, "-", round), 1, round+1)
					e.Partition = pipeline.Partition(w)
					batch = append(batch, e)
				}
				if _, err := f.store.PersistOrders(f.ctx(), 1, batch); err != nil {
					t.Errorf("writer %d: %v", w, err)
				}
			}
		})
	}
	group.Wait()
	for i := range sales {
		const n = rounds * writers
		if got, want := f.books(fmt.Sprint("sale-", i)), (books{n, n, n}); got != want {
			t.Errorf("sale %d: got %+v, want %+v", i, got, want)
		}
	}
	f.wantNoDeadlocks()
}

// wantNoDeadlocks closes the store, because a session reports its deadlocks at its end, and fails if there was one.
// They would go unnoticed otherwise, because they are retried.
func (f *fixture) wantNoDeadlocks() {
	f.Helper()
	f.store.Close()
	testkit.Eventually(f, time.Minute, "the store's sessions to end", func() bool {
		return one[int64](f, `
			select count(*) from pg_stat_activity
			where datname = current_database() and application_name = 'sluice'`) == 0
	})
	if got := one[int64](f, `select deadlocks from pg_stat_database where datname = current_database()`); got != 0 {
		f.Errorf("%d deadlocks: the order of locks is not kept", got)
	}
}

// Buyers whose two orders sit in two batches the wrong way round make a deadlock possible that no order of locks
// prevents. It is retried, and no caller notices.
func TestCrossingBuyersConverge(t *testing.T) {
	f := setup(t)
	const buyers = 400
	f.sale("drop", buyers)
	var one, two []pipeline.Event
	for i := range buyers {
		one = append(one, event("drop", fmt.Sprint("u", i), 1, int64(2*i+1)))
		two = append(two, event("drop", fmt.Sprint("u", buyers-1-i), 1, int64(2*i+2)))
	}
	var writers sync.WaitGroup
	for _, list := range [][]pipeline.Event{one, two} {
		writers.Go(func() {
			for batch := range slices.Chunk(list, 50) {
				outcomes, err := f.store.PersistOrders(f.ctx(), 1, batch)
				if err != nil {
					t.Error(err)
				}
				for _, outcome := range outcomes {
					if outcome != inserted && outcome != buyerConflict {
						t.Errorf("got %s", outcome)
					}
				}
			}
		})
	}
	writers.Wait()
	if got, want := f.books("drop"), (books{buyers, buyers, buyers}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A transaction that loses against another one is run again behind the caller's back, up to collisionTries times.
func TestCollisionsAreRetried(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"40001", "40P01"} {
		for _, try := range []struct {
			losses int
			want   pipeline.Kind
			tries  int64
		}{{4, "", 5}, {5, pipeline.KindUnavailable, 5}} {
			t.Run(fmt.Sprint(code, " ", try.losses, " times"), func(t *testing.T) {
				f := setup(t)
				f.sale("drop", 10)
				f.loseFirst("insert on orders", try.losses, code)
				outcomes, err := f.store.PersistOrders(f.ctx(), 1, events("drop", 2))
				wantKind(t, err, try.want)
				if err == nil {
					wantOutcomes(t, outcomes, inserted, inserted)
				}
				if got := one[int64](f, `select last_value from tries`); got != try.tries {
					t.Errorf("got %d tries, want %d", got, try.tries)
				}
			})
		}
	}
}

// Transactions of several statements are run again as a whole.
func TestWholeTransactionsAreRetried(t *testing.T) {
	t.Parallel()
	for change, do := range map[string]func(*fixture) error{
		"insert on endpoints": func(f *fixture) error {
			seal := func(int64) string { return "whsec_x" }
			_, err := f.store.EndpointRegistry().AddEndpoint(f.ctx(), "ann", "https://example.com/", seal, nil)
			return err
		},
		"delete on audit_log": func(f *fixture) error {
			n, err := f.store.DropLog(f.ctx(), -time.Hour, 100, nil)
			if err == nil && n == 0 {
				err = errors.New("nothing was dropped")
			}
			return err
		},
	} {
		t.Run(change, func(t *testing.T) {
			f := setup(t)
			f.exec(`insert into audit_log (actor, action) values ('a', 'restock')`)
			f.loseFirst(change, 4, "40P01")
			ok(t, do(f))
			if got := one[int64](f, `select last_value from tries`); got != 5 {
				t.Errorf("got %d tries, want 5", got)
			}
		})
	}
}

// loseFirst lets the first statements that make a change fail with a code. A sequence counts them, because it is the
// one thing that no rollback takes back.
func (f *fixture) loseFirst(change string, losses int, code string) {
	f.Helper()
	f.exec(`create sequence tries`)
	f.exec(fmt.Sprintf(`
		create function lose() returns trigger language plpgsql as $$
		begin
			if nextval('tries') <= %d then
				raise exception 'lost' using errcode = '%s';
			end if;
			return null;
		end $$`, losses, code))
	f.exec(`create trigger lose after ` + change + ` for each statement execute function lose()`)
}

// waitBlocked waits until a session of the store waits for a lock, and returns its process id.
func (f *fixture) waitBlocked() int64 {
	f.Helper()
	var pid int64
	testkit.Eventually(f, time.Minute, "a session that waits for a lock", func() bool {
		pid = one[int64](f, `
			select coalesce(max(pid), 0) from pg_stat_activity
			where datname = current_database() and application_name = 'sluice' and wait_event_type = 'Lock'`)
		return pid != 0
	})
	return pid
}

// What stood in the way of two events is gone when it is looked for: they are inserted after all.
func TestObstaclesThatGoAway(t *testing.T) {
	f := setup(t)
	f.sale("drop", 10)
	live := event("drop", "u", 1, 1)
	f.persist(live)
	// The insert skips the first two, and then waits for the sale on behalf of the third.
	batch := []pipeline.Event{event("drop", "u", 1, 2), event("created-late", "u", 1, 1), event("drop", "v", 1, 3)}
	release := f.lockSales()
	got := make(chan string, 1)
	go func() {
		outcomes, err := f.store.PersistOrders(f.ctx(), 1, batch)
		got <- fmt.Sprint(outcomes, err)
	}()
	f.waitBlocked()
	f.exec(`update orders set status = 'expired', closed_at = now() where id = $1`, live.OrderID)
	f.sale("created-late", 10)
	release()
	if got, want := <-got, fmt.Sprint([]pipeline.PersistOutcome{inserted, inserted, inserted}, error(nil)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// lockSales holds the lock of the row of the sale "drop" until the returned function is called.
func (f *fixture) lockSales() (release func()) {
	f.Helper()
	tx, err := f.raw.Begin(f.ctx())
	if err != nil {
		f.Fatal(err)
	}
	release = func() { _ = tx.Rollback(context.Background()) }
	f.Cleanup(release)
	if _, err := tx.Exec(f.ctx(), `select from sales where id = 'drop' for update`); err != nil {
		f.Fatal(err)
	}
	return release
}

// A connection that dies within the transaction: nothing is written, and the next delivery brings it all.
func TestConnectionKilledMidway(t *testing.T) {
	f := setup(t)
	f.sale("drop", 10)
	batch := events("drop", 5)
	before := f.state()
	release := f.lockSales()
	failed := make(chan error, 1)
	go func() {
		_, err := f.store.PersistOrders(f.ctx(), 1, batch)
		failed <- err
	}()
	f.exec(`select pg_terminate_backend($1::int)`, f.waitBlocked()) // all rows inserted by now, the counter not yet moved
	err := <-failed
	wantKind(t, err, pipeline.KindUnavailable)
	if !strings.Contains(err.Error(), "57P01") {
		t.Errorf("got %v, want admin_shutdown (57P01)", err)
	}
	release()
	if after := f.state(); after != before {
		t.Fatalf("something was written:\n%s\nbefore:\n%s", after, before)
	}
	wantOutcomes(t, f.persist(batch...), inserted, inserted, inserted, inserted, inserted)
	if got, want := f.books("drop"), (books{5, 5, 5}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Postgres is killed with SIGKILL under two writers, several times. Whatever they were answered, delivering until it
// is confirmed ends with each order once.
func TestPostgresKilledUnderLoad(t *testing.T) {
	t.Parallel()
	server := testkit.PrivatePostgres(t)
	f := open(t, server.URL(), patient)
	const n = 3000
	f.sale("drop", n)
	all := events("drop", n)
	ctx, cancel := context.WithTimeout(f.ctx(), time.Minute)
	defer cancel()

	var writers sync.WaitGroup
	var failures sync.Map
	progress := make(chan struct{}, n)
	for i := range 2 {
		writers.Go(func() {
			for batch := range slices.Chunk(all, 50+i) {
				deliver(ctx, t, f.store, batch, &failures)
				select {
				case progress <- struct{}{}:
				default:
				}
			}
		})
	}
	for range 3 {
		for range 15 {
			<-progress
		}
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.Restart(ctx); err != nil {
			t.Fatal(err)
		}
	}
	writers.Wait()
	if got, want := f.books("drop"), (books{n, n, n}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := f.watermark("drop", 3); got != n {
		t.Errorf("watermark: got %d, want %d", got, n)
	}
	if _, ok := failures.Load(pipeline.KindUnavailable); !ok {
		t.Error("no call failed: the kills did not hit anything")
	}
}

// deliver repeats a batch until it is confirmed, as a worker does.
func deliver(ctx context.Context, t *testing.T, store *db.Store, batch []pipeline.Event, failures *sync.Map) {
	for ctx.Err() == nil {
		_, err := store.PersistOrders(ctx, 1, batch)
		if err == nil {
			return
		}
		failures.Store(pipeline.KindOf(err), err)
		if pipeline.KindOf(err) != pipeline.KindUnavailable {
			t.Errorf("got %v, want a KindUnavailable error", err)
			return
		}
		time.Sleep(20 * time.Millisecond) // the pause of a worker whose Postgres is away
	}
	t.Error("not delivered in time")
}
