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
	"sync/atomic"
	"syscall"
)

// RedisOptions are what a caller may want other than the default.
type RedisOptions struct {
	// Config lines, redis.conf syntax, appended to our own: a later line wins.
	Config []string
}

// Redis is a private Redis or Valkey server. Its methods may be called from any goroutine.
type Redis struct {
	server
	socket string
	config string // path

	replication replication
	saves       atomic.Int64 // copies that SaveData has made, for their names
	cluster     ports        // of a node of a cluster; zero for every other server
}

// StartRedis starts a private Redis and returns once it answers. ctx bounds the start only; Close ends the server.
// ErrNoBinary is in the chain of the error when Redis is not installed.
func StartRedis(ctx context.Context, o RedisOptions) (*Redis, error) {
	den, err := openSandbox()
	if err != nil {
		return nil, err
	}
	r, err := startRedisIn(ctx, den, o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("private Redis: %w", err), den.close())
	}
	r.ownsSandbox = true
	return r, nil
}

func startRedisIn(ctx context.Context, d *sandbox, o RedisOptions) (*Redis, error) {
	binary, err := findRedis()
	if err != nil {
		return nil, err
	}
	who, err := serverAccount()
	if err != nil {
		return nil, err
	}
	name := d.uniqueName("redis")
	room, err := d.serverDir(name, who)
	if err != nil {
		return nil, err
	}
	r := &Redis{socket: filepath.Join(room, "redis.sock"), config: filepath.Join(room, "redis.conf")}
	r.server = server{
		sandbox:  d,
		dir: room,
		log:  filepath.Join(room, "redis.log"),
		spec: command{name: name, argv: []string{binary, r.config}, dir: room, env: serverEnv(room), account: who},
		stop: syscall.SIGTERM, probe: r.ping,
	}
	if err := writeFor(who, r.config, redisConfig(room, r.socket, o)); err != nil {
		return nil, err
	}
	return r, r.start(ctx)
}

// redisConfig is as durable as production (DESIGN section 4): every write is on disk before it is answered, and nothing
// is ever evicted. No snapshots: the append-only file is the data.
func redisConfig(room, socket string, o RedisOptions) string {
	lines := []string{
		"port 0",
		"unixsocket " + socket,
		"unixsocketperm 700",
		"dir " + room,
		`pidfile ""`,
		"daemonize no",
		"supervised no",
		`save ""`,
		"appendonly yes",
		"appendfsync always",
		"maxmemory-policy noeviction",
		"repl-diskless-sync-delay 0", // a replica is not kept waiting for others
	}
	return strings.Join(append(lines, o.Config...), "\n") + "\n"
}

// ping is the server's probe.
func (r *Redis) ping(ctx context.Context) error {
	_, err := r.do(ctx, "PING")
	if err != nil && strings.HasPrefix(err.Error(), "-NOAUTH") {
		return nil
	}
	return err // -LOADING: it still reads its file
}

// ask sends one command and returns the reply, or the server's error. It speaks the protocol by hand, so that no client
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
	err := errors.Join(r.closeReplicas(), r.Kill())
	if !r.ownsSandbox {
		return err
	}
	return errors.Join(err, r.sandbox.close())
}

// serverEnv is all that a server gets to see of our environment: a PGPORT or a TZ of the user's must not change it.
func serverEnv(home string) []string {
	env := []string{"HOME=" + home, "TMPDIR=" + home, "LC_ALL=C", "TZ=UTC"}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// writeFor writes a file that the account owns.
func writeFor(who account, path, content string) error {
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return err
	}
	if !who.stepDown {
		return nil
	}
	return os.Chown(path, who.uid, who.gid)
}
