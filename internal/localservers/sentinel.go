package localservers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	sentinels = 3
	// SentinelName is the name of the primary that the sentinels watch.
	SentinelName = "sluice"
)

// RedisSentinel is a private Redis with a replica on the loopback interface, and three sentinels that put the replica
// in its place when it has been away. Its methods may be called from any goroutine.
type RedisSentinel struct {
	sandbox   *sandbox
	nodes     []*Redis
	sentinels []*Redis // they speak the same protocol
	ports     []int    // of the sentinels
}

// StartRedisSentinel starts a Redis, its replica and their sentinels, and returns once the replica is in sync and the
// sentinels know of it and of each other. Config lines are as for StartRedis, and for both servers. ctx bounds the
// start only; Close ends all. ErrNoBinary is in the chain of the error when Redis is not installed.
func StartRedisSentinel(ctx context.Context, config ...string) (*RedisSentinel, error) {
	box, err := openSandbox()
	if err != nil {
		return nil, err
	}
	s := &RedisSentinel{sandbox: box}
	if err := s.start(ctx, config); err != nil {
		return nil, errors.Join(fmt.Errorf("private Redis with sentinels: %w", err), s.Close())
	}
	return s, nil
}

func (s *RedisSentinel) start(ctx context.Context, config []string) error {
	for range 2 {
		node, err := startRedisIn(ctx, s.sandbox, settings{config: config})
		if err != nil {
			return err
		}
		s.nodes = append(s.nodes, node)
		if _, err := node.listen(ctx); err != nil {
			return err
		}
	}
	primary, replica := s.nodes[0], s.nodes[1]
	if err := replica.Follow(ctx, primary); err != nil {
		return err
	}
	for range sentinels {
		sentinel, port, err := startSentinel(ctx, s.sandbox, primary.replication.port)
		if err != nil {
			return err
		}
		s.sentinels, s.ports = append(s.sentinels, sentinel), append(s.ports, port)
	}
	return s.awaitReady(ctx)
}

// startSentinel tries ports as startNode does.
func startSentinel(ctx context.Context, box *sandbox, primary int) (sentinel *Redis, port int, err error) {
	binary, err := findRedis()
	if err != nil {
		return nil, 0, err
	}
	for range portTries {
		port = lowestPort + rand.IntN(highestPort-lowestPort)
		if err = portIsFree(ctx, port); err != nil {
			continue
		}
		r := &Redis{}
		if err := r.prepare(box, box.uniqueName("sentinel")); err != nil {
			return nil, 0, err
		}
		r.socket, r.config = filepath.Join(r.dir, "redis.sock"), filepath.Join(r.dir, "sentinel.conf")
		r.spec.argv, r.stop, r.probe = []string{binary, r.config, "--sentinel"}, syscall.SIGTERM, r.ping
		if err := writeFor(r.spec.account, r.config, sentinelConfig(r.dir, r.socket, port, primary)); err != nil {
			return nil, 0, err
		}
		if err = r.start(ctx); err == nil || !strings.Contains(err.Error(), portTaken) {
			return r, port, err
		}
	}
	return nil, 0, err
}

// sentinelConfig has a primary replaced after takeOverMS. Two of three sentinels agree.
func sentinelConfig(dir, socket string, port, primary int) string {
	return strings.Join([]string{
		"bind 127.0.0.1",
		fmt.Sprintf("port %d", port),
		"unixsocket " + socket,
		"unixsocketperm 700",
		"dir " + dir,
		`pidfile ""`,
		"daemonize no",
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 2", SentinelName, primary),
		fmt.Sprintf("sentinel down-after-milliseconds %s %s", SentinelName, takeOverMS),
		fmt.Sprintf("sentinel failover-timeout %s 10000", SentinelName),
	}, "\n") + "\n"
}

func (s *RedisSentinel) awaitReady(ctx context.Context) error {
	for _, sentinel := range s.sentinels {
		if err := sentinel.await(ctx, "not ready", nil, func(ctx context.Context) error {
			info, err := sentinel.do(ctx, "INFO sentinel")
			if err == nil && !containsAll(info, "status=ok", "slaves=1", fmt.Sprintf("sentinels=%d", sentinels)) {
				err = fmt.Errorf("it knows:\n%s", info)
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// Nodes returns the two servers, the primary first, as it was at the start.
func (s *RedisSentinel) Nodes() []*Redis { return s.nodes }

// Sentinels returns the addresses of the sentinels.
func (s *RedisSentinel) Sentinels() (addresses []string) {
	for _, port := range s.ports {
		addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", port))
	}
	return addresses
}

// URL names the sentinels, in the form that REDIS_URL takes.
func (s *RedisSentinel) URL() string {
	return "redis+sentinel://" + strings.Join(s.Sentinels(), ",") + "/" + SentinelName
}

// Close ends the sentinels and the servers, and removes their data. Calling it twice is harmless.
func (s *RedisSentinel) Close() error {
	var errs []error
	for _, node := range append(append([]*Redis(nil), s.sentinels...), s.nodes...) {
		errs = append(errs, node.Close())
	}
	return errors.Join(append(errs, s.sandbox.close())...)
}
