package lock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sluice/internal/testkit"
	"sluice/lock"
)

// fencedWrite is the check of a store: a fence lower than the row's is refused. An equal one is allowed, so that one
// holder may write more than once.
const fencedWrite = `update fenced set amount = $1, fence = $2 where id = 1 and fence <= $2`

// A holder that was suspended beyond its lease wakes up and writes: Postgres refuses it, whatever it believes. Without
// the condition the same write succeeds, which is the failure.
func TestPostgresRefusesALateHolder(t *testing.T) {
	f := newFixture(t)
	pool := must(pgxpool.New(f.ctx, testkit.EmptyDatabase(t)))(t)
	defer pool.Close()
	exec := func(statement string, args ...any) int64 {
		t.Helper()
		tag := must(pool.Exec(f.ctx, statement, args...))(t)
		return tag.RowsAffected()
	}
	exec(`create table fenced (id int primary key, amount int not null, fence bigint not null default 0)`)
	exec(`insert into fenced values (1, 0)`)
	m := f.client().Mutex(f.key("a"))
	paused := must(m.Lock(f.ctx, lock.Lease(time.Second)))(t)
	next := must(m.Lock(f.ctx))(t) // when the first one's lease is over
	if n := exec(fencedWrite, 2, next.Fence()); n != 1 {
		t.Errorf("the holder wrote %d rows", n)
	}
	if n := exec(fencedWrite, 3, next.Fence()); n != 1 {
		t.Errorf("the holder's second write: %d rows", n)
	}
	if n := exec(fencedWrite, 1, paused.Fence()); n != 0 {
		t.Error("the late holder overwrote the row")
	}
	if n := exec(`update fenced set amount = 1 where id = 1`); n != 1 {
		t.Error("without the fence nothing would have stopped it, and the test shows nothing")
	}
	f.unlock(next)
}

// The database's own ways, for comparison: of a hundred callers that read a stock of ten and compare-and-set it, one
// wins and the others have to retry; a condition on the stock sells all ten and not one more.
func TestCompareAndSetUndersells(t *testing.T) {
	f := newFixture(t)
	pool := must(pgxpool.New(f.ctx, testkit.EmptyDatabase(t)))(t)
	defer pool.Close()
	check(t, errOf(pool.Exec(f.ctx, `create table stock (id int primary key, left_over int not null)`)))
	check(t, errOf(pool.Exec(f.ctx, `insert into stock values (1, 10), (2, 10)`)))
	sold := func(statement string, args ...any) (n int64) {
		var mu sync.Mutex // protects n
		each(make([]int, 100), func(int) {
			tag, err := pool.Exec(context.WithoutCancel(f.ctx), statement, args...)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			n += tag.RowsAffected()
		})
		return n
	}
	if n := sold(`update stock set left_over = $1 - 1 where id = 1 and left_over = $1`, 10); n != 1 { // all read 10
		t.Errorf("compare-and-set sold %d of 10 to 100 who read 10, want 1", n)
	}
	if n := sold(`update stock set left_over = left_over - 1 where id = 2 and left_over > 0`); n != 10 {
		t.Errorf("the condition sold %d of 10", n)
	}
}
