package localservers

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func newReplica(t *testing.T, primary *Redis, config ...string) *Redis {
	t.Helper()
	r := must(primary.StartReplica(limited(t), config...))(t)
	return r
}

// holds waits until a key has a value on a server.
func holds(t *testing.T, client *redis.Client, key, want string) {
	t.Helper()
	ctx := limited(t)
	for got := ""; got != want; time.Sleep(pollEvery) {
		got = client.Get(ctx, key).Val()
		if err := ctx.Err(); err != nil {
			t.Fatalf("%s: got %q, want %q: %v", key, got, want, err)
		}
	}
}

func TestAReplicaFollowsItsPrimaryOverRestarts(t *testing.T) {
	t.Parallel()
	primary := newRedis(t)
	client := clientOf(t, primary)
	check(t, client.Set(limited(t), "before", "1", 0).Err())
	replica := newReplica(t, primary)
	second := newReplica(t, primary)
	copies := clientOf(t, replica)
	if got := copies.Get(limited(t), "before").Val(); got != "1" {
		t.Errorf("a replica that is said to be in sync holds %q, want 1", got)
	}
	check(t, client.Set(limited(t), "after", "2", 0).Err())
	if got := client.Wait(limited(t), 2, testLimit).Val(); got != 2 {
		t.Errorf("%d replicas confirm, want 2", got)
	}
	if err := copies.Set(limited(t), "k", "v", 0).Err(); !redis.HasErrorPrefix(err, "READONLY") {
		t.Errorf("a write to a replica: got %v, want READONLY", err)
	}

	check(t, second.Close())
	check(t, primary.Kill())
	check(t, replica.Restart(limited(t))) // without its primary it starts as well
	check(t, primary.Restart(limited(t)))
	check(t, client.Set(limited(t), "later", "3", 0).Err())
	holds(t, copies, "later", "3")
}

func TestAReplicaIsPromotedAndFollowed(t *testing.T) {
	t.Parallel()
	primary := newRedis(t)
	replica := newReplica(t, primary)
	old, promoted := clientOf(t, primary), clientOf(t, replica)
	check(t, old.Set(limited(t), "k", "1", 0).Err())
	check(t, old.Wait(limited(t), 1, testLimit).Err())
	check(t, primary.Kill())
	check(t, replica.Promote(limited(t)))
	check(t, promoted.Set(limited(t), "k", "2", 0).Err())
	check(t, replica.Restart(limited(t))) // still a primary
	check(t, promoted.Incr(limited(t), "k").Err())

	check(t, primary.Restart(limited(t)))
	if got := old.Get(limited(t), "k").Val(); got != "1" {
		t.Errorf("the old primary comes back with %q, want its own 1", got)
	}
	check(t, primary.Follow(limited(t), replica))
	if got := old.Get(limited(t), "k").Val(); got != "3" {
		t.Errorf("as a replica it holds %q, want 3", got)
	}
	check(t, primary.Promote(limited(t)))
}

func TestDataIsRestored(t *testing.T) {
	t.Parallel()
	r := newRedis(t)
	client := clientOf(t, r)
	check(t, client.Incr(limited(t), "n").Err())
	saved := must(r.SaveData())(t)
	check(t, client.Incr(limited(t), "n").Err())
	if err := r.RestoreData(saved); err == nil || !strings.Contains(err.Error(), "stop or kill it first") {
		t.Errorf("on a running server: got %v", err)
	}
	for range 2 {
		check(t, r.Kill())
		check(t, r.RestoreData(saved))
		check(t, r.Restart(limited(t)))
		if got := client.Incr(limited(t), "n").Val(); got != 2 {
			t.Errorf("got %d, want 2: the one that was saved, and this", got)
		}
	}
}

// TestFilesAreLimited: a write fails, the server lives on, and no data is lost.
func TestFilesAreLimited(t *testing.T) {
	t.Parallel()
	r := newRedis(t, "appendfsync everysec")
	client := clientOf(t, r)
	check(t, client.Set(limited(t), "k", "1", 0).Err())
	if err := r.LimitFiles(1); err != nil {
		skipUnsupported(t, err)
	}
	ctx := limited(t)
	var err error
	for err == nil && ctx.Err() == nil {
		err = client.Set(ctx, "k", "2", 0).Err()
	}
	if !redis.HasErrorPrefix(err, "MISCONF") {
		t.Fatalf("got %v, want MISCONF", err)
	}
	check(t, r.LiftLimit())
	for err != nil && ctx.Err() == nil {
		err = client.Set(ctx, "k", "3", 0).Err()
	}
	check(t, err)
}
