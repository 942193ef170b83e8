package localservers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Redis is a private Redis or Valkey server. Its methods may be called from any goroutine.
type Redis struct {
	server
	socket string
	config string // path

	replication replication
	cluster     ports // of a cluster's node; zero for every other server
}

// StartRedis starts a private Redis and returns once it answers. Config lines (redis.conf syntax) are appended to our
// own: a later line wins. ctx bounds the start only; Close ends the server. ErrNoBinary is in the chain of the error
// when Redis is not installed.
func StartRedis(ctx context.Context, config ...string) (*Redis, error) {
	return startRedisAlone(ctx, settings{config: config})
}

func startRedisAlone(ctx context.Context, how settings) (r *Redis, err error) {
	return r, startAlone(func(s *sandbox) (*server, error) {
		if r, err = startRedisIn(ctx, s, how); err != nil {
			return nil, fmt.Errorf("private Redis: %w", err)
		}
		return &r.server, nil
	})
}

func startRedisIn(ctx context.Context, s *sandbox, how settings) (*Redis, error) {
	binary, err := findRedis()
	if err != nil {
		return nil, err
	}
	r := &Redis{}
	if err := r.prepare(s, s.uniqueName("redis")); err != nil {
		return nil, err
	}
	r.socket, r.config = filepath.Join(r.dir, "redis.sock"), filepath.Join(r.dir, "redis.conf")
	r.spec.argv, r.stop, r.probe = []string{binary, r.config}, syscall.SIGTERM, r.ping
	if err := writeFor(r.spec.account, r.config, redisConfig(r.dir, r.socket, how.config)); err != nil {
		return nil, err
	}
	if how.clock {
		if err := r.giveClock(ctx); err != nil {
			return nil, err
		}
	}
	return r, r.start(ctx)
}

// redisConfig is as durable as production: every write is on disk before it is answered, and nothing is ever evicted.
// There are no snapshots: the append-only file is the data.
func redisConfig(dir, socket string, config []string) string {
	lines := []string{
		"port 0",
		"unixsocket " + socket,
		"unixsocketperm 700",
		"dir " + dir,
		`pidfile ""`,
		"daemonize no",
		"supervised no",
		`save ""`,
		"appendonly yes",
		"appendfsync always",
		"stream-node-max-entries 10", // as in deploy/redis.conf, which says why
		"maxmemory-policy noeviction",
		"repl-diskless-sync-delay 0", // a replica does not wait for others
	}
	return strings.Join(append(lines, config...), "\n") + "\n"
}

// ping is the server's probe.
func (r *Redis) ping(ctx context.Context) error {
	_, err := r.do(ctx, "PING")
	if err != nil && strings.HasPrefix(err.Error(), "-NOAUTH") {
		return nil
	}
	return err // -LOADING: it still reads its file
}

// do sends one command and returns the reply, or the server's error. It speaks the protocol itself, so that no client
// library decides how often and how long to try.
func (r *Redis) do(ctx context.Context, command string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", r.socket)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if _, err := conn.Write([]byte(command + "\r\n")); err != nil {
		return "", err
	}
	reader := bufio.NewReader(conn)
	line, err := reader.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSpace(line)
	if strings.HasPrefix(line, "-") {
		return "", errors.New(line)
	}
	length, bulk := strings.CutPrefix(line, "$")
	if !bulk {
		return line, nil
	}
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 {
		return "", fmt.Errorf("%s: unknown reply %q", command, line)
	}
	text := make([]byte, n)
	_, err = io.ReadFull(reader, text)
	return string(text), err
}

// URL is the server's address in the form that redis.ParseURL and REDIS_URL take. It stays the same over restarts.
func (r *Redis) URL() string { return "unix://" + r.socket }

// Close ends the server and its replicas and removes their data. Calling it twice is harmless.
func (r *Redis) Close() error {
	return r.closeAfter(errors.Join(r.closeReplicas(), r.Kill()))
}

// serverEnv is all that a server gets of our environment: a PGPORT or a TZ of the user's must not affect it.
func serverEnv(home string) []string {
	env := []string{"HOME=" + home, "TMPDIR=" + home, "LC_ALL=C", "TZ=UTC"}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// writeFor writes a file owned by the account.
func writeFor(who account, path, content string) error {
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return err
	}
	if !who.stepDown {
		return nil
	}
	return os.Chown(path, who.uid, who.gid)
}
