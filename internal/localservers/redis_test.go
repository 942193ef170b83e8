package localservers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func clientOf(t *testing.T, r *Redis) *redis.Client {
	t.Helper()
	options := must(redis.ParseURL(r.URL()))(t)
	options.MaxRetries = -1
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	t.Cleanup(func() { check(t, client.Close()) })
	return client
}

func TestRedisIsDurableAndPrivate(t *testing.T) {
	t.Parallel()
	client := clientOf(t, newRedis(t))
	want := map[string]string{
		"appendonly": "yes", "appendfsync": "always", "save": "", "maxmemory-policy": "noeviction", "port": "0",
		"daemonize": "no",
	}
	for name, value := range want {
		got := must(client.ConfigGet(limited(t), name).Result())(t)
		if got[name] != value {
			t.Errorf("%s: got %q, want %q", name, got[name], value)
		}
	}
}

func TestRedisTakesConfigLines(t *testing.T) {
	t.Parallel()
	client := clientOf(t, newRedis(t, "maxmemory 5mb", "appendfsync everysec"))
	got := must(client.ConfigGet(limited(t), "*").Result())(t)
	if got["maxmemory"] != "5242880" || got["appendfsync"] != "everysec" {
		t.Errorf("got maxmemory %q, appendfsync %q, want 5242880, everysec", got["maxmemory"], got["appendfsync"])
	}
}

func TestRedisKeepsEveryAnsweredWriteOverAKill(t *testing.T) {
	t.Parallel()
	r := newRedis(t)
	client := clientOf(t, r)
	url, pid := r.URL(), r.PID()
	for range 3 {
		check(t, client.Incr(limited(t), "writes").Err())
		check(t, r.Kill())
		if got := r.PID(); got != 0 {
			t.Fatalf("PID after Kill: got %d, want 0", got)
		}
		if isAlive(pid) {
			t.Fatalf("process %d still runs after Kill", pid)
		}
		check(t, r.Restart(limited(t)))
	}
	got := must(client.Get(limited(t), "writes").Int())(t)
	if got != 3 || r.URL() != url {
		t.Errorf("got %d writes at %s, want 3 at %s", got, r.URL(), url)
	}
}

func TestRedisStopsInOrderAndRestarts(t *testing.T) {
	t.Parallel()
	r := newRedis(t)
	client := clientOf(t, r)
	check(t, client.Set(limited(t), "k", "v", 0).Err())
	check(t, r.Stop(limited(t)))
	check(t, r.Stop(limited(t))) // harmless
	check(t, r.Kill())           // harmless
	check(t, r.Restart(limited(t)))
	check(t, r.Restart(limited(t))) // also while it runs
	if got := client.Get(limited(t), "k").Val(); got != "v" {
		t.Errorf("got %q, want %q", got, "v")
	}
	if !strings.Contains(r.Log(), "Redis is now ready to exit") && !strings.Contains(r.Log(), "ready to exit, bye bye") {
		t.Errorf("the log shows no orderly stop:\n%s", r.Log())
	}
}

func TestPausedRedisAnswersNothingUntilResumed(t *testing.T) {
	t.Parallel()
	r := newRedis(t)
	client := clientOf(t, r)
	check(t, client.Ping(limited(t)).Err())
	check(t, r.Pause())
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := client.Ping(short).Err(); err == nil {
		t.Error("a paused Redis answered")
	}
	check(t, r.Resume())
	check(t, client.Ping(limited(t)).Err())
	check(t, r.Pause())
	check(t, r.Stop(limited(t))) // wakes it up
	if err := r.Pause(); !errors.Is(err, errNotRunning) {
		t.Errorf("pausing a stopped server: got %v, want %v", err, errNotRunning)
	}
}

func TestRedisThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	before := time.Now()
	r, err := StartRedis(limited(t), "no-such-setting 1")
	if err == nil {
		check(t, r.Close())
		t.Fatal("started with a setting that doesn't exist")
	}
	if errors.Is(err, ErrNoBinary) {
		needServer(t, err)
	}
	if !strings.Contains(err.Error(), "no-such-setting") {
		t.Errorf("the error does not show the log: %v", err)
	}
	if took := time.Since(before); took > startLimit/2 {
		t.Errorf("a server that ends at once was waited for: %s", took)
	}
}

// A server that never answers. Not parallel: it changes the environment.
func TestRedisStartIsBounded(t *testing.T) {
	fake := filepath.Join(publicDir(t), "redis-server")
	check(t, os.WriteFile(fake, []byte("#!/bin/sh\necho thinking\nexec sleep 600\n"), 0o755))
	t.Setenv(redisServerEnv, fake)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // enough for its first line, also on a busy machine
	defer cancel()
	_, err := StartRedis(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "thinking") {
		t.Errorf("got %v, want a deadline and the log", err)
	}
	left := must(processesUnder(fake))(t)
	if len(left) != 0 {
		t.Errorf("processes left: %v", left)
	}
}

func TestCloseTwiceIsHarmless(t *testing.T) {
	t.Parallel()
	r := newRedis(t)
	dir := r.Dir()
	check(t, r.Close())
	check(t, r.Close())
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}
