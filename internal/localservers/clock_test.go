package localservers

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// aroundNow fails unless a server's clock is this much ahead of ours. A minute of slack is for a busy machine.
func aroundNow(t *testing.T, what string, at time.Time, ahead time.Duration) {
	t.Helper()
	if off := time.Until(at) - ahead; off.Abs() > time.Minute {
		t.Errorf("%s: the clock is %s from where it was set", what, off)
	}
}

func TestRedisWithAClockOfItsOwn(t *testing.T) {
	t.Parallel()
	r, err := StartRedisWithClock(limited(t))
	needServer(t, err)
	t.Cleanup(func() { check(t, r.Close()) })
	replica := must(r.StartReplica(limited(t)))(t)
	client := clientOf(t, r)
	aroundNow(t, "at first", must(client.Time(limited(t)).Result())(t), 0)
	for _, ahead := range []time.Duration{time.Hour, -time.Hour, 0} {
		check(t, client.Set(limited(t), "k", "v", 2*time.Hour).Err())
		check(t, r.SetClock(ahead))
		aroundNow(t, "moved", must(client.Time(limited(t)).Result())(t), ahead)
		check(t, r.Restart(limited(t)))
		aroundNow(t, "restarted", must(client.Time(limited(t)).Result())(t), ahead)
	}
	check(t, client.Set(limited(t), "k", "v", time.Hour).Err())
	check(t, r.SetClock(2*time.Hour))
	if n := must(client.Exists(limited(t), "k").Result())(t); n != 0 {
		t.Error("a key outlived its end by the server's clock")
	}
	check(t, replica.SetClock(time.Hour))
	aroundNow(t, "the replica", must(clientOf(t, replica).Time(limited(t)).Result())(t), time.Hour)
}

func TestPostgresWithAClockOfItsOwn(t *testing.T) {
	t.Parallel()
	p, err := StartPostgresWithClock(limited(t))
	needServer(t, err)
	t.Cleanup(func() { check(t, p.Close()) })
	conn := must(pgx.Connect(limited(t), p.URL()))(t)
	t.Cleanup(func() { check(t, conn.Close(limited(t))) })
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		check(t, p.SetClock(ahead))
		var statement, wall time.Time
		check(t, conn.QueryRow(limited(t), "select now(), clock_timestamp()").Scan(&statement, &wall))
		aroundNow(t, "now()", statement, ahead)
		aroundNow(t, "clock_timestamp()", wall, ahead)
	}
}

func TestTheMachinesClockCannotBeSet(t *testing.T) {
	t.Parallel()
	if err := newRedis(t).SetClock(time.Hour); !errors.Is(err, errNoClock) {
		t.Errorf("got %v, want %v", err, errNoClock)
	}
}
